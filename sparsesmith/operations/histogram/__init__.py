"""How often each of the numbers below `bins` stands among the keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import exact
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Drawing, Expected
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    return {"counts": exact(np.bincount(inputs["keys"], minlength=problem.sizes["bins"]))}


def _even(problem: Problem, generator: np.random.Generator) -> Arrays:
    return {"keys": generator.integers(problem.sizes["bins"], size=problem.sizes["n"])}


def _one_bin(problem: Problem, generator: np.random.Generator) -> Arrays:
    """All in one: what atomic additions hate."""
    return {"keys": np.full(problem.sizes["n"], generator.integers(problem.sizes["bins"]))}


def _sorted(problem: Problem, generator: np.random.Generator) -> Arrays:
    return {"keys": np.sort(_even(problem, generator)["keys"])}


def _few(problem: Problem, generator: np.random.Generator) -> Arrays:
    """Most in a few bins."""
    shares = generator.exponential(1.0, problem.sizes["bins"]) ** 4
    return {"keys": generator.choice(problem.sizes["bins"], problem.sizes["n"], p=shares / shares.sum())}


DRAWS: Mapping[str, Drawing] = {"even": _even, "one_bin": _one_bin, "sorted": _sorted, "few": _few}

OPERATION = Task(
    name="histogram",
    formula="counts[k] = how many i have keys[i] = k",
    text="How often each whole number from 0 to bins - 1 stands among the keys; all keys are such numbers.",
    axes=("n", "bins"),
    operands=(Operand("keys", "input", ("n",), "int32"), Operand("counts", "output", ("bins",), "int32")),
    right=_right,
    flops=lambda sizes: sizes["n"],
    draws=DRAWS,
    adverse=("one_bin",),
    programs=program_texts(__name__, "naive", "shared_counts"),
    naive="naive",
    trial={"n": 1003, "bins": 29},
    published=tuple({"n": 2**power, "bins": 256} for power in (16, 18, 20, 22, 24)),
)
