"""C = A B, all row-major."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import scaled
from sparsesmith.operations.draws import OF_SUMS
from sparsesmith.operations.large_products import multiplied
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Expected
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    a, b = inputs["a"].astype(np.float64), inputs["b"].astype(np.float64)
    magnitude = multiplied(np.abs(a), np.abs(b))
    return {"c": scaled(multiplied(a, b), magnitude, 0.0, a.shape[1], problem.element_type)}


OPERATION = Task(
    name="matmul",
    formula="c[i, j] = sum over l of a[i, l] b[l, j]",
    text="The product of a matrix of m by k and one of k by n; all are row-major. Every product and sum keeps the bits "
    "of the element type: tensor cores that round factors to fewer are not right.",
    axes=("m", "k", "n"),
    operands=(
        Operand("a", "input", ("m", "k")),
        Operand("b", "input", ("k", "n")),
        Operand("c", "output", ("m", "n")),
    ),
    right=_right,
    flops=lambda sizes: 2 * sizes["m"] * sizes["k"] * sizes["n"],
    draws=OF_SUMS,
    programs=program_texts(__name__, "naive", "tiles"),
    naive="naive",
    trial={"m": 19, "k": 37, "n": 23},
    published=tuple({"m": 2**power, "k": 4096, "n": 2048} for power in (10, 12, 14, 16, 18)),
)
