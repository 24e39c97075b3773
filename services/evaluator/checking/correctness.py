"""Whether a loaded kernel computes what it should: one protocol for every device.

Every draw is executed twice, from outputs of NaN and from outputs that hold another draw's result, so that a program
which leaves entries out, adds to what was there, reads it, or races is seen. After timing, the device runs single
products with one entry changed (`LoadedKernel.time`), and then what was timed is executed again as it was timed: with
the result already in the outputs but for one entry of each, and on another draw in the same buffers. A program that
remembers its input and skips work when nothing seems to have changed, or that counts its calls, fails there.

Arrays are the device's own; only operators and methods that NumPy and CuPy share are used.

What it does not protect against: a program that searches device memory for the reference by reading out of bounds where
the device has no memory checker.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from services.evaluator.device import (
    Array,
    Draw,
    LoadedKernel,
    Ran,
    RunFailure,
    Starts,
    largest_error,
    wrong_entries,
)
from sparsesmith.operations.operation import Residual
from sparsesmith_proto.kernel import Mismatch

SHORT_BYTES = 2
_NOT_REPEATED = "right when run before: it depends on what the output held, on a race, or on the order of blocks"


class MemoryDamaged(Exception):
    """A kernel wrote outside its output: it is wrong, and the device's memory cannot be trusted any more."""


@dataclass(frozen=True)
class Correct:
    """Every run was within the bound."""

    worst_error: float
    """Largest |y - y_ref| / (|A| |x|)."""
    num_inputs: int
    same_runs: int = 0
    """Runs on one draw that gave equal bits, where that was asked for."""


def check(kernel: LoadedKernel, draws: Sequence[Draw], num_repeated: int) -> Correct | RunFailure:
    """Executes every draw from NaN outputs, and the last `num_repeated` once more from the results before.

    Raises MemoryDamaged.
    """
    worst_error = 0.0
    # The first has no other's result to start from: what the last one's should be.
    before: Starts | None = draws[-1].right if len(draws) > 1 else None
    for position, held in enumerate(draws):
        outputs: Starts | None = None
        for start in [None] if position < len(draws) - num_repeated else [None, before]:
            ran = kernel.run(held, start)
            if not isinstance(ran, Ran):
                return ran
            error = judge(ran, held)
            if isinstance(error, Mismatch):
                return error if outputs is None else Mismatch(message=f"{error.message}; {_NOT_REPEATED}")
            worst_error = max(worst_error, error)
            outputs = ran.outputs
        before = outputs
    return Correct(worst_error, len(draws))


def check_as_timed(
    kernel: LoadedKernel, timed: Draw, other: Draw, generator: np.random.Generator
) -> Correct | RunFailure:
    """Executes what was timed twice more (see above). Raises MemoryDamaged."""
    worst_error = 0.0
    outputs = timed.right
    for held in (timed, other):
        for output in outputs.values():
            spoil(output, generator)
        ran = kernel.replay(held, outputs)
        if not isinstance(ran, Ran):
            return ran
        error = judge(ran, held)
        if isinstance(error, Mismatch):
            return Mismatch(message=f"run again after timing: {error.message}")
        worst_error = max(worst_error, error)
        outputs = {name: output.copy() for name, output in ran.outputs.items()}
    return Correct(worst_error, 2)


def spoil(output: Array, generator: np.random.Generator) -> None:
    """Changes one entry to a number that no result has and every element type does."""
    flat = output.reshape(-1)
    if flat.size:
        flat[int(generator.integers(flat.size))] = _beyond(output.dtype, generator)


def _beyond(dtype: np.dtype[Any], generator: np.random.Generator) -> float:
    """A number of that type; of words of 16 bits, which stand for bfloat16, the bits of one beyond 1e37."""
    if dtype.kind == "u" and dtype.itemsize == SHORT_BYTES:
        return int(generator.integers(0x7E00, 0x7F80))
    return float(generator.uniform(0.1, 1)) * (1e9 if dtype.itemsize > SHORT_BYTES else 6e4)


def judge(ran: Ran, held: Draw) -> float | Mismatch:
    """The largest scaled error of a run, or what is wrong with it. Raises MemoryDamaged."""
    if not ran.inputs_intact:
        raise MemoryDamaged(f"input {held.name}: the kernel changed one of its inputs")
    if not ran.guards_intact:
        raise MemoryDamaged(f"input {held.name}: the kernel wrote outside its output")
    if held.residuals is not None:
        return _judged_by_residuals(ran, held)
    errors = {
        name: held.largest_error(held.widened(ran.outputs[name]), each.reference, each.bound, each.magnitude)
        for name, each in held.expected.items()
    }
    wrong = next((name for name, error in errors.items() if error == math.inf), None)
    if wrong is None:
        return max(errors.values())
    return Mismatch(message=_describe(wrong, held.widened(ran.outputs[wrong]), held))


def _judged_by_residuals(ran: Ran, held: Draw) -> float | Mismatch:
    assert held.residuals is not None
    worst = 0.0
    for name, each in held.residuals(ran.outputs).items():
        error = largest_error(each.found, np.zeros_like(each.found), each.bound, each.magnitude)
        if error == math.inf:
            return Mismatch(message=_describe_residual(name, each, held))
        worst = max(worst, error)
    return worst


def _describe_residual(name: str, residual: Residual, held: Draw) -> str:
    wrong = ~(abs(residual.found) <= residual.bound)
    first = int(wrong.reshape(-1).argmax())
    found, bound = float(residual.found.reshape(-1)[first]), float(residual.bound.reshape(-1)[first])
    return (
        f"input {held.name}: {name} does not solve the problem: residual {first} is {found:.9g}, accepted is "
        f"{bound:.2g}; {int(wrong.sum())} of {wrong.size} residuals are too large"
    )


def _describe(name: str, output: Array, held: Draw) -> str:
    expected = held.expected[name]
    wrong = wrong_entries(output, expected.reference, expected.bound)
    first = int(wrong.reshape(-1).argmax())
    place = np.unravel_index(first, wrong.shape)
    entry = f"{name}[{', '.join(str(int(index)) for index in place)}]" if place else name
    got = float(output.reshape(-1)[first])
    right = float(expected.reference.reshape(-1)[first])
    bound = float(expected.bound.reshape(-1)[first])
    seen = f"{entry} was not written or is NaN" if got != got else f"{entry} is {got:.9g}"
    return (
        f"input {held.name}: {seen}, expected {right:.9g} within {bound:.2g}; "
        f"{int(wrong.sum())} of {wrong.size} entries are wrong"
    )


class HostSeal:
    """A digest of draws in host memory; implements the Seal protocol."""

    def __init__(self, draws: Sequence[Draw]) -> None:
        self._draws = tuple(draws)
        self._digest = self._digested()

    def is_intact(self) -> bool:
        return self._digested() == self._digest

    def _digested(self) -> bytes:
        digest = hashlib.blake2b()
        for held in self._draws:
            judged = (
                array for each in held.expected.values() for array in (each.reference, each.bound, each.magnitude)
            )
            for array in (*held.inputs.values(), *judged):
                digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.digest()
