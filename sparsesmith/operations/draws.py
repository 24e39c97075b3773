"""Inputs that suit most operations: what is drawn of each operand where the operation says nothing else.

Kinds differ so that the usual shortcuts fail on one of them at least. Numbers of `uniform`, on which programs are also
timed, have an offset and a scale of their own in every draw, so that no result is known before its inputs are.
"""

from collections.abc import Callable, Mapping

import numpy as np

from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Array, Arrays, Drawing
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


GENERAL: Mapping[str, Drawing] = {
    "uniform": drawing(uniform),
    "wide_range": drawing(wide_range),
    "integers": drawing(few_integers),
    "equal": drawing(all_equal),
    "spikes": drawing(spikes),
}
"""The first is the one that is timed."""
