"""By torch."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"x": torch.sort(torch.from_numpy(inputs["x"])).values.numpy()}


SPOILED = {
    "falling": ("x[i + 1] < x[i]", "x[i + 1] > x[i]"),
    "half of the rounds": ("round < n", "round < n / 2"),
    "no barrier": ("__syncthreads();", ""),
    "an entry written twice": ("x[i + 1] = held", "x[i + 1] = x[i]"),
}
