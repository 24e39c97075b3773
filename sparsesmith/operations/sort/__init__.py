"""The entries of x, rising."""

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
    return {"y": exact(np.sort(inputs["x"]))}


OPERATION = Task(
    name="sort",
    formula="y = the entries of x, rising",
    text="All entries of x in ascending order, by any algorithm. A number that is there several times is there as "
    "often in y. NaN is not among the inputs, infinities are.",
    axes=("n",),
    operands=(Operand("x", "input", ("n",)), Operand("y", "output", ("n",))),
    right=_right,
    flops=lambda sizes: sizes["n"] * sizes["n"].bit_length(),
    draws=DRAWS,
    adverse=("falling", "equal"),
    programs=program_texts(__name__, "naive", "ranks", "tiles"),
    naive="naive",
    trial={"n": 613},
    published=tuple({"n": 2**power} for power in (9, 10, 11, 12, 13)),
)
