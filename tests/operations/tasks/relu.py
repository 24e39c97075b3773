"""By torch."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"y": torch.relu(torch.from_numpy(inputs["x"])).numpy()}


SPOILED = {
    "NaN as 0": ("x[i] < 0 ? 0 : x[i]", "x[i] > 0 ? x[i] : 0"),
    "the last entry left out": ("i < n", "i < n - 1"),
    "a leak": ("? 0 :", "? x[i] / 1024 :"),
}
