"""The largest of 27 entries three apart, of every second place along each of three axes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.bounds import exact
from sparsesmith.operations.draws import GENERAL, drawing, uniform
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Array, Arrays, Drawing, Expected
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem

TAPS, STRIDE, PADDING, DILATION = 3, 2, 1, 3


def pooled(size: int) -> int:
    """Places along an axis of the result."""
    return (size + 2 * PADDING - DILATION * (TAPS - 1) - 1) // STRIDE + 1


def _right(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    x = inputs["x"]
    sides = (PADDING, PADDING + STRIDE)  # what the last window needs at most beyond the end
    padded = np.pad(x, ((0, 0), (0, 0), sides, sides, sides), constant_values=-np.inf)
    found = np.full((*x.shape[:2], *(pooled(size) for size in x.shape[2:])), -np.inf)
    for taps in product(range(TAPS), repeat=3):
        layers, rows, cols = (
            slice(DILATION * tap, DILATION * tap + STRIDE * pooled(size), STRIDE)
            for tap, size in zip(taps, x.shape[2:], strict=True)
        )
        np.maximum(found, padded[:, :, layers, rows, cols], out=found)
    return {"y": exact(found)}


def _negative(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Below zero, so that a padding of zeros is seen."""
    return -generator.uniform(0.5, 4, shape)


def _infinite(operand: Operand, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Minus infinity in most places, so that whole windows of it are there, and infinity in a few."""
    array = np.where(generator.random(shape) < 1 / 32, uniform(operand, shape, generator), -np.inf)
    array[generator.random(shape) < 1 / 256] = np.inf
    return array


DRAWS: Mapping[str, Drawing] = {**GENERAL, "negative": drawing(_negative), "infinite": drawing(_infinite)}

OPERATION = Task(
    name="max_pool3d",
    formula="y[b, c, i, j, k] = max over r, s, t of x[b, c, 2 i - 1 + 3 r, 2 j - 1 + 3 s, 2 k - 1 + 3 t]",
    text="Max pooling in three dimensions with a window of 3 x 3 x 3 entries that lie three apart (dilation 3), stride "
    "2 and padding 1; r, s and t are 0, 1 and 2, and places outside x do not count. NaN is not among the inputs, "
    "infinities are. All are row-major; out_depth = (depth - 5) // 2 + 1, and so for the others.",
    axes=("batch", "channels", "depth", "height", "width"),
    derived={
        "out_depth": lambda sizes: pooled(sizes["depth"]),
        "out_height": lambda sizes: pooled(sizes["height"]),
        "out_width": lambda sizes: pooled(sizes["width"]),
    },
    operands=(
        Operand("x", "input", ("batch", "channels", "depth", "height", "width")),
        Operand("y", "output", ("batch", "channels", "out_depth", "out_height", "out_width")),
    ),
    right=_right,
    flops=lambda sizes: (
        26 * sizes["batch"] * sizes["channels"] * sizes["out_depth"] * sizes["out_height"] * sizes["out_width"]
    ),
    draws=DRAWS,
    programs=program_texts(__name__, "naive", "columns", "slices"),
    naive="naive",
    trial={"batch": 2, "channels": 3, "depth": 9, "height": 12, "width": 11},
    published=tuple(
        {"batch": 16, "channels": 32, "depth": size, "height": size, "width": size} for size in (16, 24, 32, 40, 48)
    ),
)
