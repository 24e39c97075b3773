"""Inputs that suit most operations: what is drawn of each operand where the operation says nothing else.

Kinds differ so that the usual shortcuts fail on one of them at least. Numbers of `uniform`, on which programs are also
timed, have an offset and a scale of their own in every draw, so that no result is known before its inputs are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Array, Arrays, Drawing, Operation
from sparsesmith.operations.task import Task

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem

VALUES = Operand("values", "input", ("nnz",))
"""Those of a matrix, which are drawn as any other input."""

SPIKES = 64
"""Every so many entries of a draw of spikes one is not zero."""

Entries = Callable[[Operand, tuple[int, ...], np.random.Generator], Array]
"""Draws an operand of a shape."""


def drawing(entries: Entries) -> Drawing:
    """A kind of inputs: every operand that is read is drawn alike and for itself."""

    def drawn(problem: Problem, generator: np.random.Generator) -> Arrays:
        return {each.name: entries(each, each.shape(problem.sizes), generator) for each in inputs_of(problem)}

    return drawn


def inputs_of(problem: Problem) -> tuple[Operand, ...]:
    """What is read: values of a matrix, inputs, and what is changed in place."""
    read = tuple(operand for operand in problem.operation.operands if operand.role in ("input", "inout"))
    return read if problem.matrix is None else (VALUES, *read)


def uniform(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Around an offset in [-1, 1], up to a scale from 1/4 to 4 away from it."""
    if operand.dtype != "T":
        return generator.integers(-1000, 1001, shape)
    return generator.uniform(-1, 1) + 4 ** generator.uniform(-1, 1) * generator.uniform(-1, 1, shape)


def wide_range(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Both signs, magnitudes from 1e-6 to 1e6, evenly in the logarithm."""
    if operand.dtype != "T":
        return generator.integers(-(2**20), 2**20 + 1, shape)
    return generator.choice([-1.0, 1.0], shape) * 10 ** generator.uniform(-6, 6, shape)


def few_integers(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Whole numbers from -3 to 3: sums are exact, and most entries are there more than once."""
    return generator.integers(-3, 4, shape)


def all_equal(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """One number everywhere."""
    return np.full(shape, generator.integers(1, 1000) if operand.dtype != "T" else generator.uniform(-2, 2))


def spikes(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Zeros but for a few entries of one or more."""
    array = np.zeros(shape)
    if array.size:
        places = generator.integers(array.size, size=1 + array.size // SPIKES)
        array.reshape(-1)[places] = np.floor(generator.uniform(1, 64, places.size) * 16) / 16
    return array


def one_power(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """One power of two everywhere, from 1/4 to 4, either sign: no order of adding it up to itself rounds."""
    return np.full(shape, generator.choice([-1.0, 1.0]) * 2.0 ** generator.integers(-2, 3))


def special(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Numbers of `uniform`, about every eighth something that comparisons and arithmetic treat on its own: NaN,
    infinities, zeros of both signs, the smallest and the largest of float32, and what is too small to be normal."""
    array = np.array(uniform(operand, shape, generator))
    places = generator.integers(array.size, size=array.size // 8)
    array.reshape(-1)[places] = np.resize(SPECIAL, places.size)
    return array


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-41, -1e-41, 2.0**-126, 3e38, -3e38])

GENERAL: Mapping[str, Drawing] = {
    "uniform": drawing(uniform),
    "wide_range": drawing(wide_range),
    "integers": drawing(few_integers),
    "equal": drawing(all_equal),
    "spikes": drawing(spikes),
}
"""The first is the one that is timed."""

SPECIAL_TOO: Mapping[str, Drawing] = {**GENERAL, "special": drawing(special)}
"""For what is found entry by entry, and defined for NaN and infinity."""

OF_SUMS: Mapping[str, Drawing] = {
    **{name: each for name, each in GENERAL.items() if name != "equal"},
    "one_power": drawing(one_power),
}
"""For long sums: adding up one number of many digits rounds the same way every time, and the plainest program, right
for all other inputs, would be far off."""


def takes_any_number(operation: Operation, operand: Operand) -> bool:
    """Whether an entry of an input may be any number of the element type: the operation is drawn `wide_range`, as most
    are, or says so."""
    if operand.dtype != "T":
        return False
    is_general = not operation.draws or GENERAL["wide_range"] in operation.draws.values()
    return is_general or (isinstance(operation, Task) and operand.name in operation.unbounded)
