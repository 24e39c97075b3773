"""y[j, i] = x[i, j]: a matrix, row-major."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import exact
from sparsesmith.operations.draws import SPECIAL_TOO
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Array, Arrays, Expected
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    return {"y": exact(_transposed(inputs["x"]))}


TILE = 256
"""Rows and columns that are transposed at once: all at once a large matrix takes six times as long."""


def _transposed(x: Array) -> Array:
    turned = np.empty(x.shape[::-1], x.dtype)
    for row in range(0, x.shape[0], TILE):
        for col in range(0, x.shape[1], TILE):
            tile = x[row : row + TILE, col : col + TILE]
            turned[col : col + TILE, row : row + TILE] = tile.T
    return turned


OPERATION = Task(
    name="transpose",
    formula="y[j, i] = x[i, j]",
    text="The transpose of a matrix of rows by cols; both are row-major.",
    axes=("rows", "cols"),
    operands=(Operand("x", "input", ("rows", "cols")), Operand("y", "output", ("cols", "rows"))),
    right=_right,
    flops=lambda sizes: 0,
    draws=SPECIAL_TOO,
    programs=program_texts(__name__, "naive", "tiles"),
    naive="naive",
    trial={"rows": 37, "cols": 53},
    published=tuple({"rows": 2**power, "cols": 2**power} for power in (10, 11, 12, 13, 14)),
)
