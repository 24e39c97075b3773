"""By torch, in float64."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"y": torch.cumsum(torch.from_numpy(inputs["x"]).double(), 0).numpy()}


SPOILED = {
    "without the entry itself": ("before + tile[threadIdx.x]", "before + tile[threadIdx.x] - x[i]"),
    "each tile for itself": ("before += tile[255]", "before = 0"),
    "a step less": ("step < 256", "step < 128"),
    "the last tile left out": ("start < n;", "start < n - 255;"),
}
