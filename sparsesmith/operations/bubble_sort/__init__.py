"""The entries of x, rising, in place: FSR's text asks for one algorithm, which what comes out cannot show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import exact
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Expected
from sparsesmith.operations.order import DRAWS
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    return {"x": exact(np.sort(inputs["x"]))}


OPERATION = Task(
    name="bubble_sort",
    formula="x = the entries of x, rising",
    text="The array is sorted in ascending order, in place, using the bubble sort algorithm and no other: neighbours "
    "that stand in the wrong order change places until none do. A number that is there several times stays so. NaN is "
    "not among the inputs, infinities are. Which algorithm a program uses is not checked: see the task sort.",
    axes=("n",),
    operands=(Operand("x", "inout", ("n",)),),
    right=_right,
    flops=lambda sizes: sizes["n"] * (sizes["n"] - 1) // 2,
    draws=DRAWS,
    adverse=("falling",),
    programs=program_texts(__name__, "naive", "shared"),
    naive="naive",
    trial={"n": 203},
    published=tuple({"n": 2**power} for power in (9, 10, 11, 12, 13)),
)
