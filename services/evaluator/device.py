"""What stands between the evaluation and a machine that runs kernels: the protocol of a device, and its data.

    Device      one GPU, or the PTX interpreter
    └── DeviceWorkload   one workload on it: operands in its memory, baselines under its harness
        └── LoadedKernel   one program: format and module in its memory; runs, is timed, is run again as it was timed

A device executes and measures. It judges nothing but memory: what is right is decided by `correctness`, one piece of
code for every device, which uses arrays only through operators and methods, so that they may be NumPy's or CuPy's.

All of this runs in the sandbox's child process (`sandbox`). A device whose state can no longer be trusted (a sticky
CUDA error) raises DeviceLost: the child ends, the candidate becomes Crashed, and the next one gets a new process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from sparsesmith.formats.format import Format, Layout, Parameters
from sparsesmith.operations import Problem
from sparsesmith.operations.operation import Expected, Residual
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.evaluation import LaunchWork
from sparsesmith_proto.kernel import (
    Baselines,
    Crashed,
    DeviceDescription,
    EstimatedTiming,
    MeasuredTiming,
    Mismatch,
    Rejected,
    TimedOut,
)

if TYPE_CHECKING:
    from services.evaluator.compiling.compiler import Compiled

Array = Any
"""An array of the device's own library (NumPy, CuPy); `correctness` uses operators, `.all()`, `.max()`, `.copy()`."""

Starts = Mapping[str, Array]
"""What outputs hold before a run, by operand."""

Timing = MeasuredTiming | EstimatedTiming

RunFailure = Mismatch | Crashed | TimedOut
"""What a kernel can do wrong when it runs."""

BuildsFormats = Literal["never", "at_once", "always"]
"""For which programs a device builds the formats: none, those whose kernel is wanted at once, all."""

ALIGNMENT_BYTES = 256
"""Every buffer a kernel sees starts at a multiple of this, as with cudaMalloc; kernels may rely on it."""

GUARD_BYTES = 4096
"""At least this many bytes lie before and after every buffer: NaN patterns around A, x, scratch; a canary around y."""


class DeviceLost(Exception):
    """The device cannot be used any more; its process must end."""


SMALLEST = 1e-300
"""Keeps 0 / 0 of empty rows at 0: where the magnitude is 0 the bound is 0, so the error is too."""

VALUES = "values"
"""Those of a matrix among the inputs of a draw."""


def wrong_entries(output: Array, reference: Array, bound: Array) -> Array:
    """Whether each entry is beyond its bound. Infinities and NaN are right where the reference has the same."""
    same = (output == reference) | ((output != output) & (reference != reference))
    with np.errstate(invalid="ignore"):
        return ~((abs(output - reference) <= bound) | same)


def largest_error(output: Array, reference: Array, bound: Array, magnitude: Array) -> float:
    """The largest |output - reference| / magnitude; infinite where an entry is beyond its bound, or NaN alone."""
    if not output.size:
        return 0.0
    if bool(wrong_entries(output, reference, bound).any()):
        return float("inf")
    with np.errstate(invalid="ignore"):
        scaled = abs(output - reference).reshape(-1) / (magnitude.reshape(-1) + SMALLEST)
    # What is infinite or NaN and right has no distance.
    scaled[scaled != scaled] = 0
    return float(scaled.max())


Judge = Callable[[Array, Array, Array, Array], float]


def as_it_is(output: Array) -> Array:
    """NumPy computes with subnormal numbers."""
    return output


def in_type(numbers: Array, dtype: np.dtype[Any]) -> Array:
    """NumPy rounds to every type."""
    return numbers.astype(dtype)


@dataclass(frozen=True, eq=False)
class Draw:
    """One set of inputs with what is right of the outputs.

    Made once a batch by `DeviceWorkload.draws`, used for all candidates.
    """

    name: str
    """How it was drawn: `uniform`, `one_hot`, ..."""
    inputs: Mapping[str, Array]
    """By operand, in its type and shape, row-major: what is read, and what is changed in place as it is at the start;
    VALUES are those of the matrix, shape [nnz], in CSR order."""
    expected: Mapping[str, Expected]
    """By operand: outputs, and what is changed in place."""
    types: Mapping[str, np.dtype[Any]]
    """Of the elements of what is expected."""
    largest_error: Judge = largest_error
    """As the function of this name; a device may have a faster one for its own arrays."""
    residuals: Callable[[Mapping[str, Array]], Mapping[str, Residual]] | None = None
    """Of outputs: what is judged where they may differ though all are right, in the place of `expected`."""
    widened: Callable[[Array], Array] = as_it_is
    """An output as it is judged, no number rounded; a device whose library would round makes it wider first."""
    narrowed: Callable[[Array, np.dtype[Any]], Array] = in_type
    """The way back: numbers of float64 rounded to the type of an output."""

    @property
    def right(self) -> Mapping[str, Array]:
        """Outputs as they should be, in their own types."""
        return {name: self.narrowed(each.reference, self.types[name]) for name, each in self.expected.items()}

    def copy(self) -> Draw:
        """With arrays of its own, which may be changed."""
        expected = {
            name: Expected(each.reference.copy(), each.magnitude.copy(), each.bound.copy())
            for name, each in self.expected.items()
        }
        return replace(self, inputs={name: array.copy() for name, array in self.inputs.items()}, expected=expected)

    @property
    def values(self) -> Array:
        """Of the matrix."""
        return self.inputs[VALUES]

    @property
    def dense(self) -> Array:
        """The one input beside the matrix, of operations that have one."""
        (name,) = (name for name in self.inputs if name != VALUES)
        return self.inputs[name]

    @property
    def output(self) -> str:
        """The name of the one output, of operations that have one."""
        (name,) = self.expected
        return name

    @property
    def reference(self) -> Array:
        """Of the one output: float64."""
        return self.expected[self.output].reference

    @property
    def bound(self) -> Array:
        """Of the one output: the largest |y - reference| that is accepted."""
        return self.expected[self.output].bound

    @property
    def magnitude(self) -> Array:
        """Of the one output: the scale of the error, |A| |x|."""
        return self.expected[self.output].magnitude


@dataclass(frozen=True, eq=False)
class BuiltMatrix:
    """The pattern in a program's format, without values unless the program has them compressed. Shared by all programs
    that ask for the same format."""

    key: str
    """Format and parameters as text: equal keys within a workload mean the same object; uploads may be cached by it."""
    layout: Layout
    format_bytes: int
    conversion_ms: float
    built_on: Literal["host", "device"] = "host"


@dataclass(frozen=True, eq=False)
class Ran:
    """One execution of all launches of a program."""

    outputs: Mapping[str, Array]
    """By operand: outputs and what is changed in place, in their types and shapes. Copies: later runs do not change
    them."""
    guards_intact: bool
    """Nothing outside the outputs (and scratch) was written that lies in a guard zone."""
    inputs_intact: bool
    """A and the inputs are bit for bit what they were. When they are not, the device has restored them."""


@dataclass(frozen=True)
class Retimed:
    """Finalists and one library routine timed in turns, so that drift falls on all alike."""

    kernels: tuple[Timing | RunFailure, ...]
    """In the order given; a failure for a time that cannot be believed."""
    routine: Timing


class LoadedKernel(Protocol):
    """A program in the device's memory: its format, its modules, its own output and operand buffers."""

    def run(self, draw: Draw, start: Starts | None) -> Ran | RunFailure:
        """Packs the draw's values into the format and runs every launch once, in order, then waits.

        A, inputs and outputs lie at offsets (multiples of ALIGNMENT_BYTES) chosen anew for each call. Outputs start as
        `start`, or where that is None as NaN (-1 of whole numbers), what is changed in place as the draw has it;
        scratch holds NaN or numbers that nobody knows. `draw` is one that is held for the workload. A device that has
        a say in which block and warp go first chooses anew for each call with a `start`, where the workload is
        deterministic.
        """
        ...

    def time(self, draw: Draw, vouched_to_us: float = math.inf) -> Timing | RunFailure:
        """Times the launches on this draw, briefly.

        Mismatch for a time that cannot be (below the byte floor), or where what was timed is not the whole work: with
        one entry of A or of the dense operand changed, and nothing else, it must give the result of that. The second is
        not asked of a time beyond `vouched_to_us`, which nobody is paid for.
        """
        ...

    def time_on(self, draw: Draw) -> Timing | RunFailure:
        """Times the launches on another draw than programs are ranked by, briefly.

        Mismatch for a time below the byte floor, and where something was written that must not be. Whether work is left
        out when it is repeated is asked of `time` alone.
        """
        ...

    def replay(self, draw: Draw, start: Starts) -> Ran | RunFailure:
        """Runs what was timed once more, exactly as it was timed (same graph, same addresses, scratch as it was left).

        Only the contents of A and of the inputs become the draw's, and the outputs' become `start`. Called after
        `time` or `time_on`.
        """
        ...

    def close(self) -> None:
        """Frees its memory. Safe to call twice."""
        ...


@runtime_checkable
class Counting(Protocol):
    """A loaded kernel that knows what its launches did."""

    def counted(self) -> tuple[LaunchWork, ...]:
        """Of each launch, in the first run."""
        ...


@dataclass(frozen=True)
class Inspected:
    """Nothing undefined was found."""

    num_blocks: int
    """That were looked at to their end."""
    of_blocks: int
    """Of all launches."""


@runtime_checkable
class Inspecting(Protocol):
    """A loaded kernel whose every access can be looked at."""

    def inspect(self, draw: Draw) -> Inspected | Crashed | Mismatch:
        """Whether a run does what CUDA leaves undefined: accesses out of bounds, reads of what nothing has written,
        races, copies that nobody waited for. Crashed or Mismatch say what and where."""
        ...


class Seal(Protocol):
    """Contents of memory as they were at one moment."""

    def is_intact(self) -> bool:
        """Whether nothing was written since; waits for the device."""
        ...


class DeviceWorkload(Protocol):
    """One workload on a device."""

    @property
    def max_products(self) -> int:
        """Multiply-adds that checking one candidate may take: bounds the inputs (see `operands.choose_draws`)."""
        ...

    @property
    def max_draws(self) -> int:
        """Inputs of different kinds that its memory has room for at once; two at least."""
        ...

    def baselines(self) -> Baselines:
        """Times every library routine that applies. Slow; the worker keeps the result for each workload."""
        ...

    def draw(self, name: str, seed: int | None = None) -> Draw:
        """Inputs of a kind (`operands.choose_draws`) in the device's memory: from the operating system's randomness, or
        the same for the same seed (128 bits) in every process on such a device.

        Kept as long as somebody refers to it. Programs are not timed on it: see `draws`.
        """
        ...

    def draws(self, names: Sequence[str]) -> tuple[Draw, ...]:
        """Those of a batch, of these kinds in this order, from the operating system's randomness; with all that
        programs which were timed on the first are run again on."""
        ...

    def vouch(self) -> None:
        """Makes sure, once, that the device's own references are right, before programs are judged for good by what is
        drawn. Raises Unavailable."""
        ...

    def seal(self, draws: Sequence[Draw]) -> Seal:
        """Remembers the contents of draws, and of what they are judged by."""
        ...

    def build(self, key: str, format_: Format, parameters: Parameters) -> Layout | None:
        """The pattern in a format, built by the device and held there under a BuiltMatrix's key; None where the host
        has to build it. Raises InvalidProgram where the pattern does not fit."""
        ...

    def load(self, program: KernelProgram, matrix: BuiltMatrix, binary: Compiled) -> LoadedKernel | Rejected | Crashed:
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

    builds_formats: BuildsFormats
    """For which programs it builds formats, where it can."""

    def description(self) -> DeviceDescription: ...

    def open(self, problem: Problem) -> DeviceWorkload:
        """Raises LimitExceeded where it does not fit the device's memory."""
        ...

    def settle(self) -> None:
        """Where others use the device, too: waits until nothing runs on it that this process began."""
        ...

    def close(self) -> None: ...
