"""y[j, i] = x[i, j]: a matrix, row-major."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparsesmith.operations.bounds import exact
from sparsesmith.operations.draws import SPECIAL_TOO
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Expected
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    return {"y": exact(inputs["x"].T)}


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
