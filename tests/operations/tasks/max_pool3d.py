"""By torch."""

import torch

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    x = torch.from_numpy(inputs["x"])
    return {"y": torch.nn.functional.max_pool3d(x, kernel_size=3, stride=2, padding=1, dilation=3).numpy()}


SPOILED = {
    "a padding of zeros": ("(T)__int_as_float(0xff800000)", "0"),
    "no dilation": ("3 * r", "r"),
    "the smallest": ("entry > largest", "entry < largest"),
    "the last window left out": ("* out_width) return", "* out_width - 1) return"),
    "no padding": ("2 * col - 1", "2 * col"),
}
