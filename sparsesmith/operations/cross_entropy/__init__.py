"""The mean of what a classifier's logits say against the labels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import scaled
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Drawing, Expected
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    """Each term is a difference of logits, whose sizes it is rounded by, and a logarithm."""
    logits = inputs["logits"].astype(np.float64)
    largest = logits.max(axis=1)
    logarithms = np.log(np.exp(logits - largest[:, None]).sum(axis=1))
    labelled = logits[np.arange(len(logits)), inputs["labels"]]
    terms = largest + logarithms - labelled
    size = (np.abs(largest) + np.abs(labelled) + logarithms).mean()
    return {"loss": scaled(terms.mean(), size, 16.0, terms.size, problem.element_type)}


def _logits(problem: Problem, generator: np.random.Generator, spread: float) -> Arrays:
    """Around an offset of this draw's own."""
    n, classes = problem.sizes["n"], problem.sizes["classes"]
    logits = generator.uniform(-1, 1) + spread * generator.normal(size=(n, classes))
    return {"logits": logits, "labels": generator.integers(classes, size=n)}


def _sure(problem: Problem, generator: np.random.Generator) -> Arrays:
    """The label's logit is the largest by far, or by far not."""
    drawn = _logits(problem, generator, 1.0)
    n = problem.sizes["n"]
    drawn["logits"][np.arange(n), drawn["labels"]] += 30 * generator.choice([-1.0, 1.0], n)
    return drawn


def _far(problem: Problem, generator: np.random.Generator) -> Arrays:
    """A thousand above or below zero, row by row: exponentials overflow, or are all zero, unless the largest is taken
    off."""
    drawn = _logits(problem, generator, 1.0)
    drawn["logits"] += 1000 * generator.choice([-1.0, 1.0], (problem.sizes["n"], 1))
    return drawn


def _masked(problem: Problem, generator: np.random.Generator) -> Arrays:
    """Minus infinity for every other class but the label's."""
    drawn = _logits(problem, generator, 1.0)
    own = drawn["labels"][:, None] == np.arange(problem.sizes["classes"])
    drawn["logits"][~own & (generator.random(own.shape) < 1 / 2)] = -np.inf
    return drawn


def _alike(problem: Problem, generator: np.random.Generator) -> Arrays:
    return _logits(problem, generator, 0.0)


DRAWS: Mapping[str, Drawing] = {
    "normal": partial(_logits, spread=1.0),
    "wide": partial(_logits, spread=20.0),
    "sure": _sure,
    "far": _far,
    "masked": _masked,
    "alike": _alike,
}

OPERATION = Task(
    name="cross_entropy",
    formula="loss = mean over i of log(sum(exp(logits[i, :]))) - logits[i, labels[i]]",
    text="The mean, over n rows, of the logarithm of the sum of the exponentials of a row's logits less the logit of "
    "its label: a whole number from 0 to classes - 1. Logits are row-major. No intermediate result may overflow "
    "(subtract the row's largest logit first); logits of minus infinity, never the label's, add nothing.",
    axes=("n", "classes"),
    operands=(
        Operand("logits", "input", ("n", "classes")),
        Operand("labels", "input", ("n",), "int32"),
        Operand("loss", "output"),
    ),
    right=_right,
    flops=lambda sizes: 4 * sizes["n"] * sizes["classes"],
    draws=DRAWS,
    unbounded=("logits",),
    programs=program_texts(__name__, "naive", "rows_in_registers"),
    naive="naive",
    ordered="rows_in_registers",
    trial={"n": 203, "classes": 10},
    published=tuple({"n": 2**power, "classes": 10} for power in (14, 16, 18, 20, 22)),
)
