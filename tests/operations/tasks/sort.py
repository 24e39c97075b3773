"""By torch."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"y": torch.sort(torch.from_numpy(inputs["x"])).values.numpy()}


SPOILED = {
    "duplicates lost": ("(x[j] == x[i] && j < i)", "false"),
    "falling": ("x[j] < x[i]", "x[j] > x[i]"),
    "a copy": ("y[rank]", "y[i]"),
}
