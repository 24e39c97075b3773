"""By torch, in float64."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    x, weights = (torch.from_numpy(inputs[name]).double()[None, None] for name in ("x", "weights"))
    return {"y": torch.nn.functional.conv2d(x, weights)[0, 0].numpy()}


SPOILED = {
    "the last row of weights left out": ("r < kernel_rows", "r < kernel_rows - 1"),
    "weights turned round": (
        "weights[r * kernel_cols + s]",
        "weights[kernel_rows * kernel_cols - 1 - r * kernel_cols - s]",
    ),
    "a scale of 1.001": ("= sum;", "= sum * (T)1.001;"),
    "one row further down": ("(row + r)", "(row + r + 1 < rows ? row + r + 1 : row + r)"),
}
