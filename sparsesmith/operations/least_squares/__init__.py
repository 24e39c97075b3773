"""The weights with which features come nearest to a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import summing_share
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Drawing, Expected, Float64Array, Residual
from sparsesmith.operations.task import JudgedTask
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    """One solution; what is judged are residuals."""
    a, b = inputs["a"].astype(np.float64), inputs["b"].astype(np.float64)
    w: Float64Array = np.linalg.lstsq(a, b, rcond=None)[0].astype(np.float64)
    return {"w": Expected(w, np.abs(w), 1e-2 * (1 + np.abs(w)))}


def _residuals(problem: Problem, inputs: Arrays, outputs: Arrays) -> Mapping[str, Residual]:
    """Of the normal equations, A^T (A w - b), beside |A|^T (|A| |w| + |b|)."""
    a, b = inputs["a"].astype(np.float64), inputs["b"].astype(np.float64)
    w = outputs["w"].astype(np.float64)
    magnitude = np.abs(a).T @ (np.abs(a) @ np.abs(w) + np.abs(b))
    # Of weights that are infinite nothing is accepted.
    bound = np.where(np.isfinite(magnitude), summing_share(len(a), problem.element_type) * magnitude, 0.0)
    return {"w": Residual(a.T @ (a @ w - b), magnitude, bound)}


def _drawn(problem: Problem, generator: np.random.Generator) -> Arrays:
    """Independent features, and a target that they tell most of."""
    a = generator.uniform(-1, 1, (problem.sizes["n"], problem.sizes["features"]))
    w = generator.uniform(-2, 2, problem.sizes["features"])
    return {"a": a, "b": a @ w + 0.1 * generator.normal(size=len(a))}


def _alike(problem: Problem, generator: np.random.Generator) -> Arrays:
    """All features have a part in common."""
    drawn = _drawn(problem, generator)
    return {**drawn, "a": drawn["a"] + generator.uniform(-1, 1, (problem.sizes["n"], 1))}


def _unrelated(problem: Problem, generator: np.random.Generator) -> Arrays:
    """The target has nothing to do with the features."""
    return {**_drawn(problem, generator), "b": generator.uniform(-1, 1, problem.sizes["n"])}


DRAWS: Mapping[str, Drawing] = {"independent": _drawn, "alike": _alike, "unrelated": _unrelated}

OPERATION = JudgedTask(
    name="least_squares",
    formula="w minimises |A w - b|",
    text="The weights with which the features (columns of the row-major matrix A) come nearest to b in the sum of "
    "squares, computed on the device. A has full rank and more rows than columns; what is judged is how far the "
    "weights are from solving the normal equations.",
    axes=("n", "features"),
    operands=(
        Operand("a", "input", ("n", "features")),
        Operand("b", "input", ("n",)),
        Operand("w", "output", ("features",)),
    ),
    right=_right,
    judged=_residuals,
    flops=lambda sizes: sizes["n"] * sizes["features"] * (sizes["features"] + 3),
    draws=DRAWS,
    unbounded=("a", "b"),
    programs=program_texts(__name__, "naive", "sums_in_registers"),
    naive="naive",
    trial={"n": 203, "features": 10},
    published=tuple({"n": 2**power, "features": 10} for power in (14, 16, 18, 20, 22)),
)
