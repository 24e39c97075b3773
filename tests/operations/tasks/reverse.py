"""By torch."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"x": torch.flip(torch.from_numpy(inputs["x"]), [0]).numpy()}


SPOILED = {
    "the middle pair left out": ("i >= n / 2", "i >= n / 2 - 1"),
    "one half lost": ("x[n - 1 - i] = first;", ""),
    "off by one": ("x[n - 1 - i] = first;", "x[n - 1 - i] = x[i];"),
    "nothing done": ("i >= n / 2", "true"),
}
