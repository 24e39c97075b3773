"""x reversed, in place."""

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
    return {"x": exact(inputs["x"][::-1])}


OPERATION = Task(
    name="reverse",
    formula="x[i], x[n - 1 - i] = x[n - 1 - i], x[i]",
    text="The entries of x in the opposite order, in place: x holds the input at the start and the result at the end.",
    axes=("n",),
    operands=(Operand("x", "inout", ("n",)),),
    right=_right,
    flops=lambda sizes: 0,
    draws=SPECIAL_TOO,
    programs=program_texts(__name__, "naive", "vectors"),
    naive="naive",
    trial={"n": 1003},
    published=tuple({"n": 2**power} for power in (20, 22, 24, 26, 28)),
)
