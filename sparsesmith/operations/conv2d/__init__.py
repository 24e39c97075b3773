"""A matrix under a smaller one of weights that slides over it, where it lies wholly inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import scaled
from sparsesmith.operations.draws import OF_SUMS
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Expected, Float64Array
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    x, weights = inputs["x"].astype(np.float64), inputs["weights"].astype(np.float64)
    reference, magnitude = _slid(x, weights), _slid(np.abs(x), np.abs(weights))
    return {"y": scaled(reference, magnitude, 0.0, weights.size, problem.element_type)}


ROWS_AT_ONCE = 64
"""Of the result, while the weights go over it: they stay in a core's cache."""


def _slid(x: Float64Array, weights: Float64Array) -> Float64Array:
    """Weight by weight: no transform, whose rounding would be that of the largest entry."""
    out_rows, out_cols = x.shape[0] - weights.shape[0] + 1, x.shape[1] - weights.shape[1] + 1
    y = np.zeros((out_rows, out_cols))
    for first in range(0, out_rows, ROWS_AT_ONCE):
        part = y[first : first + ROWS_AT_ONCE]
        terms = np.empty_like(part)
        for (row, col), weight in np.ndenumerate(weights):
            under = x[first + row : first + row + len(part), col : col + out_cols]
            part += np.multiply(under, weight, out=terms)
    return y


OPERATION = Task(
    name="conv2d",
    formula="y[i, j] = sum over r, s of x[i + r, j + s] weights[r, s]",
    text="A convolution in two dimensions with the boundary condition `valid`: the weights are applied where they lie "
    "wholly inside x, so that y has out_rows = rows - kernel_rows + 1 and out_cols = cols - kernel_cols + 1. The "
    "weights are not turned round. All are row-major.",
    axes=("rows", "cols", "kernel_rows", "kernel_cols"),
    derived={
        "out_rows": lambda sizes: sizes["rows"] - sizes["kernel_rows"] + 1,
        "out_cols": lambda sizes: sizes["cols"] - sizes["kernel_cols"] + 1,
    },
    operands=(
        Operand("x", "input", ("rows", "cols")),
        Operand("weights", "input", ("kernel_rows", "kernel_cols")),
        Operand("y", "output", ("out_rows", "out_cols")),
    ),
    right=_right,
    flops=lambda sizes: 2 * sizes["out_rows"] * sizes["out_cols"] * sizes["kernel_rows"] * sizes["kernel_cols"],
    draws=OF_SUMS,
    programs=program_texts(__name__, "naive", "tiles"),
    naive="naive",
    trial={"rows": 29, "cols": 37, "kernel_rows": 5, "kernel_cols": 3},
    published=tuple(
        {"rows": size, "cols": size, "kernel_rows": 24, "kernel_cols": 24} for size in (128, 256, 512, 1024, 2048)
    ),
)
