"""By torch."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"y": torch.topk(torch.from_numpy(inputs["x"]), sizes["k"]).values.numpy()}


SPOILED = {
    "duplicates lost": ("(x[j] == x[i] && j < i)", "false"),
    "the last entry left out": ("j < n; j++", "j < n - 1; j++"),
    "the smallest": ("x[j] > x[i]", "x[j] < x[i]"),
    "rising": ("y[rank]", "y[k - 1 - rank]"),
}
