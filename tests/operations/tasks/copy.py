"""By torch."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"y": torch.from_numpy(inputs["x"]).clone().numpy()}


SPOILED = {
    "the last row left out": ("(size_t)rows * cols) y", "(size_t)(rows - 1) * cols) y"),
    "the first entry everywhere": ("= x[i]", "= x[0]"),
    "ten bits": ("= x[i]", "= __int_as_float(__float_as_int(x[i]) & 0xffffe000)"),
}
