"""Inputs of tasks that put numbers in order: what duplicates, runs and infinities do to them."""

from collections.abc import Mapping

import numpy as np

from sparsesmith.operations.draws import GENERAL, drawing, uniform
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Array, Drawing


def _rising(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    return np.sort(uniform(operand, shape, generator))


def _falling(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    return _rising(operand, shape, generator)[::-1]


def _negative(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Below zero, so that zeros which a program fills places up with are seen."""
    return -generator.uniform(0.5, 4, shape)


def _infinite(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """An eighth of either infinity, zeros of both signs, and the largest and smallest of float32."""
    array = np.array(uniform(operand, shape, generator))
    is_special = generator.random(shape) < 1 / 2
    special = np.array([np.inf, -np.inf, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38])
    array[is_special] = generator.choice(special, int(is_special.sum()))
    return array


DRAWS: Mapping[str, Drawing] = {
    **GENERAL,
    "rising": drawing(_rising),
    "falling": drawing(_falling),
    "negative": drawing(_negative),
    "infinite": drawing(_infinite),
}
"""Whole numbers of a small range are among them, all equal, and few beside many zeros: every number more than once."""
