"""y[i] = max(x[i], 0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import exact
from sparsesmith.operations.draws import SPECIAL_TOO
from sparsesmith.operations.elementwise import elementwise_programs
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Expected
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    return {"y": exact(np.maximum(inputs["x"], 0))}


OPERATION = Task(
    name="relu",
    formula="y[i] = max(x[i], 0)",
    text="Each entry of x or 0, whichever is larger. NaN stays NaN.",
    axes=("n",),
    operands=(Operand("x", "input", ("n",)), Operand("y", "output", ("n",))),
    right=_right,
    flops=lambda sizes: sizes["n"],
    draws=SPECIAL_TOO,
    programs={
        **program_texts(__name__, "naive"),
        **elementwise_programs("relu", ("n",), "of < 0 ? 0 : of"),
    },
    naive="naive",
    trial={"n": 1003},
    published=tuple({"n": 2**power} for power in (20, 22, 24, 26, 28)),
)
