"""By torch, in float64."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"y": torch.softmax(torch.from_numpy(inputs["x"]).double(), 1).numpy()}


SPOILED = {
    "no largest": ("from[col] - largest", "from[col]"),
    "the last column left out": ("col < cols; col++) y[", "col < cols - 1; col++) y["),
    "one entry left out of the sum": ("int col = 0; col < cols; col++) sum", "int col = 1; col < cols; col++) sum"),
    "every row as the first": ("x + (size_t)row * cols", "x"),
}
