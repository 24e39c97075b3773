"""By torch, in float64."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    x, y = (torch.from_numpy(inputs[name]).double() for name in ("x", "y"))
    return {"total": torch.nn.functional.mse_loss(x, y).numpy()}


SPOILED = {
    "divided by n - 1": ("/= n", "/= n - 1"),
    "not divided": ("/= n", "/= 1"),
    "sizes in the place of squares": ("(x[i] - y[i]) * (x[i] - y[i])", "abs(x[i] - y[i])"),
    "added to what was there": ("*total = 0;", ""),
}
