"""y[i, :] = exp(x[i, :]) / sum(exp(x[i, :])): a task that another package brings, in a folder of its own."""

from collections.abc import Mapping

import numpy as np

from sparsesmith.operations import Operand, Problem
from sparsesmith.operations.operation import Arrays, Expected
from sparsesmith.operations.sums import ROUNDOFF, TOLERANCES
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts


def right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    """Rounding x - max(x) to u changes its exponential by |x - max(x)| u, as a share; the sum is that of one row."""
    x = inputs["x"].astype(np.float64)
    below = x - x.max(axis=1, keepdims=True)
    grown = np.exp(below)
    y = grown / grown.sum(axis=1, keepdims=True)
    share = TOLERANCES[problem.element_type] + (16 - 4 * below) * ROUNDOFF[problem.element_type]
    smallest = float(np.finfo(inputs["x"].dtype).tiny)
    return {"y": Expected(y, y, y * share + smallest)}


OPERATION = Task(
    name="row_softmax",
    formula="y[i, :] = exp(x[i, :]) / sum(exp(x[i, :]))",
    axes=("rows", "cols"),
    operands=(
        Operand("x", "input", ("rows", "cols"), meaning="dense matrix, row-major"),
        Operand("y", "output", ("rows", "cols"), meaning="dense matrix, row-major; garbage at the start"),
    ),
    right=right,
    flops=lambda sizes: 5 * sizes["rows"] * sizes["cols"],
    programs=program_texts(__name__, "thread_a_row", "block_a_row"),
    naive="thread_a_row",
    trial={"rows": 37, "cols": 53},
)
