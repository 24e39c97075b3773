"""Sums of all that comes before, and of the entry itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import scaled
from sparsesmith.operations.draws import OF_SUMS
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Expected
from sparsesmith.operations.sums import limit_to_exact_sums
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    """Each as a sum of its own; of whole numbers, where no order rounds, the sum itself."""
    x = inputs["x"].astype(np.float64)
    sizes = np.cumsum(np.abs(x))
    found = scaled(np.cumsum(x), sizes, 0.0, np.arange(1, x.size + 1), problem.element_type)
    if bool((x == np.rint(x)).all()):
        limit_to_exact_sums(found.bound, sizes, problem.element_type)
    return {"y": found}


OPERATION = Task(
    name="prefix_sum",
    formula="y[i] = x[0] + ... + x[i]",
    text="The inclusive prefix sum: each entry of y is the sum of the entries of x up to its place, in any order.",
    axes=("n",),
    operands=(Operand("x", "input", ("n",)), Operand("y", "output", ("n",))),
    right=_right,
    flops=lambda sizes: sizes["n"],
    draws=OF_SUMS,
    programs=program_texts(__name__, "naive", "three_launches", "looking_back", "alone", "two_launches"),
    naive="naive",
    trial={"n": 5003},
    published=tuple({"n": 2**power} for power in (10, 14, 18, 22, 26)),
)
