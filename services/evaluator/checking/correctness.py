"""Whether a loaded kernel computes what it should: one protocol for every device.

Every draw is executed twice, from a y of NaN and from a y that holds another draw's result, so that a program which
leaves entries out, adds to what was there, reads it, or races is seen. After timing, the device runs single products
with one entry changed (`LoadedKernel.time`), and then what was timed is executed again as it was timed: with the result
already in y but for one entry, and on another draw in the same buffers. A program that remembers its input and skips
work when nothing seems to have changed, or that counts its calls, fails there.

Arrays are the device's own; only operators and methods that NumPy and CuPy share are used.

What it does not protect against: a program that searches device memory for the reference by reading out of bounds where
the device has no memory checker.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.evaluator.device import Array, Draw, LoadedKernel, Ran, RunFailure
from sparsesmith_proto.kernel import Mismatch

_NOT_REPEATED = "right when run before: it depends on what the output held, on a race, or on the order of blocks"


class MemoryDamaged(Exception):
    """A kernel wrote outside its output: it is wrong, and the device's memory cannot be trusted any more."""


@dataclass(frozen=True)
class Correct:
    """Every run was within the bound."""

    worst_error: float
    """Largest |y - y_ref| / (|A| |x|)."""
    num_inputs: int


def check(kernel: LoadedKernel, draws: Sequence[Draw], num_repeated: int) -> Correct | RunFailure:
    """Executes every draw from a NaN output, and the last `num_repeated` once more from the result before.

    Raises MemoryDamaged.
    """
    worst_error = 0.0
    # The first has no other's result to start from: what the last one's should be.
    before: Array = draws[-1].reference.astype(draws[-1].dense.dtype) if len(draws) > 1 else None
    for position, held in enumerate(draws):
        output: Array = None
        for start in [None] if position < len(draws) - num_repeated else [None, before]:
            ran = kernel.run(held, start)
            if not isinstance(ran, Ran):
                return ran
            error = judge(ran, held)
            if isinstance(error, Mismatch):
                return error if output is None else Mismatch(message=f"{error.message}; {_NOT_REPEATED}")
            worst_error = max(worst_error, error)
            output = ran.output
        before = output
    return Correct(worst_error, len(draws))


def check_as_timed(
    kernel: LoadedKernel, timed: Draw, other: Draw, generator: np.random.Generator
) -> Correct | RunFailure:
    """Executes what was timed twice more (see above). Raises MemoryDamaged."""
    worst_error = 0.0
    output = timed.reference.astype(timed.dense.dtype)
    for held in (timed, other):
        flat = output.reshape(-1)
        flat[int(generator.integers(flat.size))] = generator.uniform(0.1, 1) * _garbage(output)
        ran = kernel.replay(held, output)
        if not isinstance(ran, Ran):
            return ran
        error = judge(ran, held)
        if isinstance(error, Mismatch):
            return Mismatch(message=f"run again after timing: {error.message}")
        worst_error = max(worst_error, error)
        output = ran.output.copy()
    return Correct(worst_error, 2)


def _garbage(output: Array) -> float:
    """A number that no result has and every element type does."""
    return 1e9 if output.dtype.itemsize > 2 else 6e4


def judge(ran: Ran, held: Draw) -> float | Mismatch:
    """The largest scaled error of a run, or what is wrong with it. Raises MemoryDamaged."""
    if not ran.inputs_intact:
        raise MemoryDamaged(f"input {held.name}: the kernel changed A or the dense operand")
    if not ran.guards_intact:
        raise MemoryDamaged(f"input {held.name}: the kernel wrote outside its output")
    error = held.largest_error(ran.output, held.reference, held.bound, held.magnitude)
    return error if error < math.inf else Mismatch(message=_describe(ran.output, held))


def _describe(output: Array, held: Draw) -> str:
    wrong = ~(abs(output - held.reference) <= held.bound)
    first = int(wrong.reshape(-1).argmax())
    place = np.unravel_index(first, wrong.shape)
    entry = f"{held.output}[{', '.join(str(int(index)) for index in place)}]"
    got = float(output.reshape(-1)[first])
    expected = float(held.reference.reshape(-1)[first])
    bound = float(held.bound.reshape(-1)[first])
    seen = f"{entry} was not written or is NaN" if got != got else f"{entry} is {got:.9g}"
    return (
        f"input {held.name}: {seen}, expected {expected:.9g} within {bound:.2g}; "
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
            for array in (held.values, held.dense, held.reference, held.bound, held.magnitude):
                digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.digest()
