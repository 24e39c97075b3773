"""The mean of the squares of x - y."""

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
    """Squares are off by 3 u: a difference that is rounded, and the product."""
    terms = (inputs["x"].astype(np.float64) - inputs["y"].astype(np.float64)) ** 2
    mean = terms.mean()
    return {"total": scaled(mean, mean, 4.0, terms.size, problem.element_type)}


OPERATION = Task(
    name="mse",
    formula="total = sum((x[i] - y[i])^2) / n",
    text="The mean squared error: the mean of the squares of the entries of x - y, into one number.",
    axes=("n",),
    operands=(Operand("x", "input", ("n",)), Operand("y", "input", ("n",)), Operand("total", "output")),
    right=_right,
    flops=lambda sizes: 3 * sizes["n"],
    draws=OF_SUMS,
    programs={**program_texts(__name__, "naive"), **reduction_programs("mse", ("x", "y"), "(x - y) * (x - y)", "n")},
    naive="naive",
    trial={"n": 1003},
    published=tuple({"n": 2**power} for power in (10, 12, 14, 16, 18)),
)
