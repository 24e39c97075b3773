"""By torch."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"y": torch.from_numpy(inputs["x"]).t().contiguous().numpy()}


SPOILED = {
    "a copy": ("(size_t)(i % cols) * rows + i / cols", "i"),
    "the last row left out": ("(size_t)rows * cols) y", "(size_t)(rows - 1) * cols) y"),
}
