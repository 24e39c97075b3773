"""The k largest entries of x, the largest first."""

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
    return {"y": exact(np.sort(inputs["x"])[::-1][: problem.sizes["k"]])}


OPERATION = Task(
    name="top_k",
    formula="y = the k largest of x, falling",
    text="The k largest entries of x in descending order. A number that is there several times counts as often: of 5, "
    "5, 3 and 1 the three largest are 5, 5 and 3. NaN is not among the inputs, infinities are.",
    axes=("n", "k"),
    constraints={"k <= n": lambda sizes: sizes["k"] <= sizes["n"]},
    operands=(Operand("x", "input", ("n",)), Operand("y", "output", ("k",))),
    right=_right,
    flops=lambda sizes: sizes["n"],
    draws=DRAWS,
    adverse=("rising", "equal"),
    programs=program_texts(__name__, "naive", "sampled", "two_rounds"),
    naive="naive",
    trial={"n": 1003, "k": 37},
    published=tuple({"n": n, "k": k} for n, k in ((2**10, 32), (2**12, 64), (2**14, 128), (2**16, 256), (2**18, 512))),
)
