"""y[i] = 1 / (1 + exp(-x[i]))."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import smallest
from sparsesmith.operations.draws import SPECIAL_TOO
from sparsesmith.operations.elementwise import elementwise_programs
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Expected
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem

ULPS = 4
"""Units in the last place that an entry may be off."""


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    """With more digits than float64 has, where the machine does: of float64 results the last place is judged."""
    x = inputs["x"].astype(np.longdouble)
    with np.errstate(over="ignore"):
        y = (1 / (1 + np.exp(-x))).astype(np.float64)
    places = np.spacing(y.astype(problem.element_type)).astype(np.float64)
    magnitude = np.nan_to_num(y)
    bound = np.where(np.isnan(y), 0.0, ULPS * places) + smallest(problem.element_type)
    return {"y": Expected(y, magnitude, bound)}


OPERATION = Task(
    name="sigmoid",
    formula="y[i] = 1 / (1 + exp(-x[i]))",
    text="The logistic function of each entry, within 4 units in the last place. Of NaN it is NaN, of infinity 1, of "
    "minus infinity 0.",
    axes=("n",),
    operands=(Operand("x", "input", ("n",)), Operand("y", "output", ("n",))),
    right=_right,
    flops=lambda sizes: 4 * sizes["n"],
    draws=SPECIAL_TOO,
    programs={
        **program_texts(__name__, "naive"),
        **elementwise_programs("sigmoid", ("n",), "1 / (1 + exp(-of))"),
    },
    naive="naive",
    trial={"n": 1003},
    published=tuple({"n": 16 * 2**power} for power in (10, 12, 14, 16, 18)),
)
