"""Features of each position brought to mean 0 and variance 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import smallest
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Expected
from sparsesmith.operations.sums import ROUNDOFF
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


EPSILON = 1e-5
"""Added to the variance."""


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    """Differences lose as much as the largest feature is rounded by, and the variance what they lose."""
    x = inputs["x"].astype(np.longdouble)
    spread = np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
    y = (x - x.mean(axis=1, keepdims=True)) / spread
    lost = np.abs(x).max(axis=1, keepdims=True) / spread
    magnitude = ((1 + np.abs(y)) * (lost + 1)).astype(np.float64)
    roundoffs = 8 + 2 * x.shape[1]
    bound = roundoffs * ROUNDOFF[problem.element_type] * magnitude + smallest(problem.element_type)
    return {"y": Expected(y.astype(np.float64), magnitude, bound)}


OPERATION = Task(
    name="layer_norm",
    formula="y[b, :, p] = (x[b, :, p] - mean) / sqrt(variance + 1e-5), over the features of a position",
    text="Layer normalisation over the features (the middle axis) of each position of a row-major array: the variance "
    "is the mean of the squares of the differences from the mean, without correction; there is no scale and no shift.",
    axes=("batch", "features", "positions"),
    operands=(
        Operand("x", "input", ("batch", "features", "positions")),
        Operand("y", "output", ("batch", "features", "positions")),
    ),
    right=_right,
    flops=lambda sizes: 8 * sizes["batch"] * sizes["features"] * sizes["positions"],
    programs=program_texts(__name__, "naive", "vectors"),
    naive="naive",
    trial={"batch": 3, "features": 4, "positions": 75},
    published=tuple({"batch": 16, "features": 4, "positions": side**2} for side in (64, 128, 256, 512, 1024)),
)
