"""What stands between the evaluation and a machine that runs kernels: the protocol of a device, and its data.

    Device      one GPU, or the PTX interpreter
    └── Bench   one workload on it: operands in its memory, baselines under its harness
        └── LoadedKernel   one program: format and module in its memory; runs, is timed, is run again as it was timed

A device executes and measures. It judges nothing but memory: what is right is decided by `correctness`, one piece of
code for every device, which uses arrays only through operators and methods, so that they may be NumPy's or CuPy's.

All of this runs in the sandbox's child process (`sandbox`). A device whose state can no longer be trusted (a sticky
CUDA error) raises DeviceLost: the child ends, the candidate becomes Crashed, and the next one gets a new process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sparsesmith.formats.format import Layout
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import (
    Baselines,
    Crashed,
    DeviceDescription,
    EstimatedTiming,
    MeasuredTiming,
    Mismatch,
    Rejected,
    TimedOut,
    Workload,
)

if TYPE_CHECKING:
    from services.evaluator.compiling.compiler import Compiled

Array = Any
"""An array of the device's own library (NumPy, CuPy); `correctness` uses operators, `.all()`, `.max()`, `.copy()`."""

Timing = MeasuredTiming | EstimatedTiming

RunFailure = Mismatch | Crashed | TimedOut
"""What a kernel can do wrong when it runs."""

ALIGNMENT_BYTES = 256
"""Every buffer a kernel sees starts at a multiple of this, as with cudaMalloc; kernels may rely on it."""

GUARD_BYTES = 4096
"""At least this many bytes lie before and after every buffer: NaN patterns around A, x, scratch; a canary around y."""


class DeviceLost(Exception):
    """The device cannot be used any more; its process must end."""


SMALLEST = 1e-300
"""Keeps 0 / 0 of empty rows at 0: where the magnitude is 0 the bound is 0, so the error is too."""


def largest_error(output: Array, reference: Array, bound: Array, magnitude: Array) -> float:
    """The largest |output - reference| / magnitude; infinite where an entry is NaN or beyond its bound."""
    error = abs(output - reference)
    is_right = error <= bound
    return float((error / (magnitude + SMALLEST)).max()) if bool(is_right.all()) else float("inf")


@dataclass(frozen=True, eq=False)
class Draw:
    """One set of values for A and the dense operand, with the result and its error bound.

    Made once a batch by `Bench.draw`, used for all candidates.
    """

    name: str
    """How it was drawn: `uniform`, `one_hot`, ..."""
    values: Array
    """Element type, shape [nnz], in CSR order."""
    dense: Array
    """Element type: x, shape [num_cols], or b, shape [num_cols, num_dense_cols], row-major."""
    reference: Array
    """float64: y, shape [num_rows], or c, shape [num_rows, num_dense_cols]."""
    bound: Array
    """float64, shape of the reference: the largest |y - reference| that is accepted."""
    magnitude: Array
    """float64, shape of the reference: |A| |x|, the scale of the error."""
    largest_error: Callable[[Array, Array, Array, Array], float] = largest_error
    """As the function of this name; a device may have a faster one for its own arrays."""
    output: str = "y"
    """The output's name, for messages."""


@dataclass(frozen=True, eq=False)
class StoredMatrix:
    """The pattern in a program's format, without values unless the program has them compressed. Shared by all programs
    that ask for the same format."""

    key: str
    """Format and parameters as text: equal keys within a bench mean the same object, so uploads may be cached by it."""
    layout: Layout
    format_bytes: int
    conversion_ms: float


@dataclass(frozen=True, eq=False)
class Ran:
    """One execution of all launches of a program."""

    output: Array
    """Element type, shape of the reference. A copy: later runs do not change it."""
    guards_intact: bool
    """Nothing outside y (and scratch) was written that lies in a guard zone."""
    inputs_intact: bool
    """A and the dense operand are bit for bit what they were. When they are not, the device has restored them."""


@dataclass(frozen=True)
class Retimed:
    """Finalists and one library routine timed in turns, so that drift falls on all alike."""

    kernels: tuple[Timing | RunFailure, ...]
    """In the order given; a failure for a time that cannot be believed."""
    routine: Timing


class LoadedKernel(Protocol):
    """A program in the device's memory: its format, its modules, its own output and operand buffers."""

    def run(self, draw: Draw, start: Array | None) -> Ran | RunFailure:
        """Packs the draw's values into the format and runs every launch once, in order, then waits.

        A, the dense operand and y lie at offsets (multiples of ALIGNMENT_BYTES) chosen anew for each call. y starts as
        `start`, or where that is None as NaN; scratch holds NaN or numbers that nobody knows. `draw` is one that the
        bench holds.
        """
        ...

    def time(self, draw: Draw) -> Timing | RunFailure:
        """Times the launches on this draw, briefly.

        Mismatch for a time that cannot be (below the byte floor), or where what was timed is not the whole work: with
        one entry of A or of the dense operand changed, and nothing else, it must give the result of that.
        """
        ...

    def replay(self, draw: Draw, start: Array) -> Ran | RunFailure:
        """Runs what was timed once more, exactly as it was timed (same graph, same addresses, scratch as it was left).

        Only the contents of A and the dense operand become the draw's, and y's become `start`. Called after `time`.
        """
        ...

    def close(self) -> None:
        """Frees its memory. Safe to call twice."""
        ...


class Seal(Protocol):
    """Contents of memory as they were at one moment."""

    def is_intact(self) -> bool:
        """Whether nothing was written since; waits for the device."""
        ...


class Bench(Protocol):
    """One workload on a device."""

    @property
    def max_products(self) -> int:
        """Multiply-adds that checking one candidate may take: bounds the inputs (see `operands.choose_draws`)."""
        ...

    def baselines(self) -> Baselines:
        """Times every library routine that applies. Slow; the worker keeps the result for each workload."""
        ...

    def draw(self, name: str) -> Draw:
        """Inputs of a kind (`operands.choose_draws`) from the operating system's randomness, in the device's memory.

        Kept as long as somebody refers to it. Raises Unavailable where the device's references cannot be trusted.
        """
        ...

    def seal(self, draws: Sequence[Draw]) -> Seal:
        """Remembers the contents of draws, and of what they are judged by."""
        ...

    def load(self, program: KernelProgram, matrix: StoredMatrix, binary: Compiled) -> LoadedKernel | Rejected | Crashed:
        """Uploads the format and loads the module. Rejected where launch or memory limits do not allow it."""
        ...

    def retime(self, kernels: Sequence[LoadedKernel], draw: Draw, routine: str) -> Retimed:
        """Times finalists (each was run before) interleaved with a library routine by name, at length."""
        ...

    def close(self) -> None:
        """Frees the operands and every kernel still loaded."""
        ...


class Device(Protocol):
    """One machine that runs kernels. Constructed in the sandbox's child, before anything of the job is known."""

    def description(self) -> DeviceDescription: ...

    def open(self, workload: Workload, pattern: Pattern, values: FixedValues | None = None) -> Bench:
        """`values`: where the workload fixes them. Raises LimitExceeded where it does not fit the device's memory."""
        ...

    def close(self) -> None: ...
