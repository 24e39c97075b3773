"""x . y."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

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
    terms = inputs["x"].astype(np.float64) * inputs["y"].astype(np.float64)
    return {"total": summed(terms, problem.element_type)}


OPERATION = Task(
    name="dot",
    formula="total = sum(x[i] y[i])",
    text="The inner product of two vectors, added up in any order, into one number.",
    axes=("n",),
    operands=(Operand("x", "input", ("n",)), Operand("y", "input", ("n",)), Operand("total", "output")),
    right=_right,
    flops=lambda sizes: 2 * sizes["n"],
    draws=OF_SUMS,
    programs={**program_texts(__name__, "naive"), **reduction_programs("dot", ("x", "y"), "x * y")},
    naive="naive",
    trial={"n": 1003},
    published=tuple({"n": 2**power} for power in (16, 17, 18, 19, 20)),
)
