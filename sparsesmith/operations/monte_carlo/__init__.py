"""The mean of values of a function at points that were drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import scaled
from sparsesmith.operations.draws import OF_SUMS
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Expected
from sparsesmith.operations.reduction import reduction_programs
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    values = inputs["values"].astype(np.float64)
    return {"total": scaled(values.mean(), np.abs(values).mean(), 4.0, values.size, problem.element_type)}


OPERATION = Task(
    name="monte_carlo",
    formula="total = sum(values[i]) / n",
    text="The Monte Carlo estimate of a mean: all values added up, in any order, and divided by their number.",
    axes=("n",),
    operands=(Operand("values", "input", ("n",)), Operand("total", "output")),
    right=_right,
    flops=lambda sizes: 1 * sizes["n"],
    draws=OF_SUMS,
    programs={**program_texts(__name__, "naive"), **reduction_programs("monte_carlo", ("values",), "values", "n")},
    naive="naive",
    trial={"n": 1003},
    published=tuple({"n": 2**power} for power in (14, 16, 18, 20, 22)),
)
