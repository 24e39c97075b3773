"""y = x: a matrix, row-major."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparsesmith.operations.bounds import exact
from sparsesmith.operations.draws import SPECIAL_TOO
from sparsesmith.operations.elementwise import elementwise_programs
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Expected
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    return {"y": exact(inputs["x"])}


OPERATION = Task(
    name="copy",
    formula="y = x",
    text="A matrix of rows by cols copied to another place; both are row-major.",
    axes=("rows", "cols"),
    operands=(Operand("x", "input", ("rows", "cols")), Operand("y", "output", ("rows", "cols"))),
    right=_right,
    flops=lambda sizes: 0,
    draws=SPECIAL_TOO,
    programs={
        **program_texts(__name__, "naive"),
        **elementwise_programs("copy", ("rows", "cols"), "of"),
    },
    naive="naive",
    trial={"rows": 37, "cols": 53},
    published=tuple({"rows": 2**power, "cols": 2**power} for power in (10, 11, 12, 13, 14)),
)
