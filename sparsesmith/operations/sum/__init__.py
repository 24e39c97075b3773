"""The sum of x."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparsesmith.operations.bounds import summed
from sparsesmith.operations.draws import OF_SUMS
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Expected
from sparsesmith.operations.reduction import reduction_programs
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    return {"total": summed(inputs["x"], problem.element_type)}


OPERATION = Task(
    name="sum",
    formula="total = sum(x)",
    text="All entries of x added up, in any order, into one number.",
    axes=("n",),
    operands=(Operand("x", "input", ("n",)), Operand("total", "output")),
    right=_right,
    flops=lambda sizes: sizes["n"],
    draws=OF_SUMS,
    programs={**program_texts(__name__, "naive"), **reduction_programs("sum", ("x",), "x")},
    naive="naive",
    trial={"n": 1003},
    published=tuple({"n": 2**power} for power in (10, 12, 14, 16, 18)),
)
