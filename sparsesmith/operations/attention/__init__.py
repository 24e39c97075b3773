"""Attention of several heads: shares of v by how well keys fit a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsesmith.operations.bounds import smallest
from sparsesmith.operations.draws import drawing, uniform
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Array, Arrays, Drawing, Expected
from sparsesmith.operations.sums import ROUNDOFF
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts
from sparsesmith_proto.message import ElementType

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem

OWN_ERRORS = 8
"""As many errors of the reference's own float32 are accepted."""
ROUNDOFFS = 4
"""And as many u of what scores and shares are made of, where that error happens to be small."""


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    q, k, v = (_heads(inputs[name]) for name in ("q", "k", "v"))
    found = np.empty(q.shape)
    magnitude, bound = np.empty(q.shape), np.empty(q.shape)
    for head in range(len(q)):
        found[head], magnitude[head], bound[head] = _right_of_head(q[head], k[head], v[head], problem.element_type)
    back = (1, 0, 2)
    return {"y": Expected(found.transpose(back), magnitude.transpose(back), bound.transpose(back))}


def _right_of_head(q: Array, k: Array, v: Array, element_type: ElementType) -> tuple[Array, Array, Array]:
    """Result, what it is made of, and bound, each [n, head_dim]."""
    wide = [array.astype(np.float64) for array in (q, k, v)]
    shares = _shares(wide[0], wide[1])
    found, magnitude = shares @ wide[2], shares @ np.abs(wide[2])
    own = [array.astype(np.float32) for array in (q, k, v)]
    error = np.abs(_in_order(*own) - _exactly(*own)) * (ROUNDOFF[element_type] / ROUNDOFF["float32"])
    scores = np.abs(wide[0]) @ np.abs(wide[1]).T / np.sqrt(q.shape[1])
    made_of = (shares * (ROUNDOFFS + scores)) @ np.abs(wide[2])
    roundings = ROUNDOFFS * ROUNDOFF[element_type] * made_of
    typical = np.sqrt(np.mean(error**2))
    return found, magnitude, OWN_ERRORS * np.maximum(error, typical) + roundings + smallest(element_type)


def _heads(array: Array) -> Array:
    """[n, heads, head_dim] as [heads, n, head_dim]."""
    return np.ascontiguousarray(array.transpose(1, 0, 2))


def _shares(q: Array, k: Array) -> Array:
    """[queries, keys]; rows add up to 1."""
    scores = q @ k.T / np.sqrt(q.dtype.type(q.shape[1]))
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Array = grown / grown.sum(axis=1, keepdims=True)
    return shares


def _exactly(q: Array, k: Array, v: Array) -> Array:
    wide = [array.astype(np.float64) for array in (q, k, v)]
    result: Array = _shares(wide[0], wide[1]) @ wide[2]
    return result


def _in_order(q: Array, k: Array, v: Array) -> Array:
    """As the plainest program does it in the arrays' own type: every sum term after term."""
    scores = np.zeros((len(q), len(k)), q.dtype)
    for place in range(q.shape[1]):
        scores += q[:, place, None] * k[:, place]
    scores /= np.sqrt(q.dtype.type(q.shape[1]))
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    total = np.zeros((len(q), 1), q.dtype)
    result: np.ndarray[Any, Any] = np.zeros(q.shape, q.dtype)
    for key in range(len(k)):
        total += grown[:, key, None]
        result += grown[:, key, None] * v[key]
    return result / total


def _sharp(problem: Problem, generator: np.random.Generator) -> Arrays:
    """Scores up to a hundred and more: exponentials overflow unless the largest is taken off, and few keys count."""
    shape = problem.operation.operands[0].shape(problem.sizes)
    size = 20 / problem.sizes["head_dim"] ** 0.25
    q, k = (size * generator.uniform(-1, 1, shape) for _ in range(2))
    return {"q": q, "k": k, "v": uniform(problem.operation.operands[2], shape, generator)}


def _low(problem: Problem, generator: np.random.Generator) -> Arrays:
    """Scores around minus two hundred: every exponential is zero unless the largest is taken off."""
    shape = problem.operation.operands[0].shape(problem.sizes)
    size = 200**0.5 / problem.sizes["head_dim"] ** 0.25
    q, k = (size * generator.uniform(0.9, 1.1, shape) for _ in range(2))
    return {"q": -q, "k": k, "v": uniform(problem.operation.operands[2], shape, generator)}


def _rising(problem: Problem, generator: np.random.Generator) -> Arrays:
    """Later keys fit better, so that what was added up before must be made smaller again and again."""
    drawn = _sharp(problem, generator)
    order = np.argsort(drawn["k"].sum(axis=2), axis=0)
    return {**drawn, "q": np.abs(drawn["q"]), "k": np.take_along_axis(drawn["k"], order[:, :, None], axis=0)}


def _equal(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """One row everywhere: all keys fit alike, and the mean of equal rows is the row."""
    return np.broadcast_to(generator.uniform(-2, 2, shape[1:]), shape)


DRAWS: Mapping[str, Drawing] = {
    "uniform": drawing(uniform),
    "sharp": _sharp,
    "low": _low,
    "rising": _rising,
    "equal": drawing(_equal),
}

OPERATION = Task(
    name="attention",
    formula="y[:, h, :] = softmax(q[:, h, :] k[:, h, :]^T / sqrt(head_dim)) v[:, h, :]",
    text="Self-attention of several heads, without a mask. q, k and v are n by heads * head_dim, row-major: a head has "
    "its own head_dim columns in each. For every query i and head h, the scores of all n keys (the dot product of row "
    "i of q and row j of k within the head, over the square root of head_dim) become shares by softmax, and row i of y "
    "within the head is the sum of the rows of v by these shares. Scores may be far above and below zero.",
    axes=("n", "heads", "head_dim"),
    operands=(
        Operand("q", "input", ("n", "heads", "head_dim")),
        Operand("k", "input", ("n", "heads", "head_dim")),
        Operand("v", "input", ("n", "heads", "head_dim")),
        Operand("y", "output", ("n", "heads", "head_dim")),
    ),
    right=_right,
    flops=lambda sizes: 4 * sizes["n"] ** 2 * sizes["heads"] * sizes["head_dim"],
    draws=DRAWS,
    programs=program_texts(__name__, "naive", "online"),
    naive="naive",
    trial={"n": 21, "heads": 3, "head_dim": 5},
    published=tuple(
        {"n": n, "heads": heads, "head_dim": width // heads}
        for n, width, heads in ((64, 32, 4), (128, 64, 8), (256, 128, 8), (384, 256, 16), (512, 512, 16))
    ),
)
