"""Exponentials of each row as shares of their sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import scaled
from sparsesmith.operations.draws import GENERAL, drawing, uniform
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Array, Arrays, Drawing, Expected
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem

LEAST = -800.0
"""The exponential of what is farther below the largest is 0, in float64 too."""


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    """Rounding x - max(x) to u changes its exponential by |x - max(x)| u, as a share; the sum is that of one row."""
    x = inputs["x"].astype(np.float64)
    with np.errstate(invalid="ignore"):
        below = x - x.max(axis=1, keepdims=True)
        grown = np.exp(below)
        y = grown / grown.sum(axis=1, keepdims=True)
    far = np.nan_to_num(-np.maximum(below, LEAST))
    found = scaled(y, np.nan_to_num(y), 16 + 4 * far, x.shape[1], problem.element_type)
    return {"y": found}


def _masked(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Minus infinity in half the places, all over some rows, where the result is NaN; NaN in one."""
    x = np.array(uniform(operand, shape, generator))
    x[generator.random(shape) < 1 / 2] = -np.inf
    row, col = (int(generator.integers(size)) for size in shape)
    x[row] = -np.inf
    x[(row + 1) % shape[0], col] = np.nan
    return x


DRAWS: Mapping[str, Drawing] = {
    **{name: each for name, each in GENERAL.items() if name != "integers"},
    "masked": drawing(_masked),
}
"""Exponentials of a few integers are a few numbers of many digits: adding up tens of thousands of them rounds the same
way every time, and the plainest program would be far off."""

OPERATION = Task(
    name="softmax",
    formula="y[i, :] = exp(x[i, :]) / sum(exp(x[i, :]))",
    text="The softmax of each row of a row-major matrix. No intermediate result may overflow where the result does not "
    "(subtract the row's largest entry first). Minus infinity has the share 0; a row with NaN, or of nothing but minus "
    "infinity, is NaN.",
    axes=("rows", "cols"),
    operands=(Operand("x", "input", ("rows", "cols")), Operand("y", "output", ("rows", "cols"))),
    right=_right,
    flops=lambda sizes: 5 * sizes["rows"] * sizes["cols"],
    draws=DRAWS,
    programs=program_texts(__name__, "naive", "block_a_row", "warp_a_row", "row_in_registers"),
    naive="naive",
    trial={"rows": 37, "cols": 53},
    published=(
        {"rows": 64, "cols": 65536},
        {"rows": 65536, "cols": 128},
        {"rows": 4096, "cols": 4096},
        {"rows": 32768, "cols": 1000},
        {"rows": 2048, "cols": 50257},
    ),
)
