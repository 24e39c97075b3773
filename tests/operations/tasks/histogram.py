"""By torch."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"counts": torch.bincount(torch.from_numpy(inputs["keys"]), minlength=sizes["bins"]).numpy()}


SPOILED = {
    "added to what was there": ("counts[bin] = 0", "counts[bin] += 0"),
    "the last bin left out": ("if (i < n)", "if (i < n && keys[i] != bins - 1)"),
    "a race": ("atomicAdd(&counts[keys[i]], 1)", "counts[keys[i]]++"),
}
