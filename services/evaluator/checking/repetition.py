"""Whether a program gives the same bits whenever it is run on the same inputs.

A run starts from what the one before left, at addresses that the device chooses anew; the interpreter runs blocks and
warps in an order drawn for each run. Bits are compared with those of the first run, entry by entry; a NaN is a NaN.
Runs of several contexts are compared by a digest of their outputs, on a draw that follows from one seed.

What this does not protect against: an order that none of the runs happened to take. Programs with atomics whose order
decides the bits are refused before (`compiling.contract.flow.unordered`).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from services.evaluator.checking.correctness import judge
from services.evaluator.device import Array, Draw, LoadedKernel, Ran, RunFailure, Starts
from sparsesmith_proto.kernel import Mismatch

FEWEST_RUNS = 2
MOST_RUNS = 16


@dataclass(frozen=True)
class Bits:
    """What all runs of a program on one draw left."""

    digest: str
    runs: int


def num_runs(num_products: int, max_products: int) -> int:
    """Of a problem of so many multiply-adds, where checking one candidate may take `max_products`."""
    return max(FEWEST_RUNS, min(MOST_RUNS, max_products // max(num_products, 1)))


def repeated_bits(kernel: LoadedKernel, held: Draw, runs: int) -> Bits | RunFailure:
    """Mismatch where a run is wrong or gives other bits than the first. Raises MemoryDamaged."""
    first: Mapping[str, Array] = {}
    start: Starts | None = None
    for run in range(1, runs + 1):
        ran = kernel.run(held, start)
        if not isinstance(ran, Ran):
            return ran
        error = judge(ran, held)
        if isinstance(error, Mismatch):
            return error
        first = first or {name: output.copy() for name, output in ran.outputs.items()}
        for name, output in ran.outputs.items():
            differs = _differs(first[name], output)
            if bool(differs.any()):
                one, other = held.widened(first[name]), held.widened(output)
                return Mismatch(message=_described(held, name, run, one, other, differs))
        start = ran.outputs
    return Bits(_digest(first), runs)


def _differs(one: Array, other: Array) -> Array:
    word = f"u{one.dtype.itemsize}"
    return (one.view(word) != other.view(word)) & ~((one != one) & (other != other))


def _digest(outputs: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(outputs):
        output = outputs[name].copy()
        output[output != output] = 0  # Which of all NaN it is says nothing.
        digest.update(f"{name} {output.dtype} ".encode())
        digest.update((outputs[name] != outputs[name]).tobytes() + output.tobytes())
    return digest.hexdigest()


def _described(held: Draw, name: str, run: int, one: Array, other: Array, differs: Array) -> str:
    first = int(differs.reshape(-1).argmax())
    place = ", ".join(str(int(index)) for index in np.unravel_index(first, differs.shape))
    entry = f"{name}[{place}]" if place else name
    return (
        f"input {held.name}: run {run} gave other bits than run 1: {entry} is {float(other.reshape(-1)[first]):.9g} "
        f"and was {float(one.reshape(-1)[first]):.9g}; {int(differs.sum())} of {differs.size} entries differ, "
        "deterministic=true asks for none"
    )
