"""By Python's exact sum."""

import math

import numpy as np

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"total": np.array(math.fsum(inputs["x"].tolist()))}


SPOILED = {
    "the last entry left out": ("i < n)", "i < n - 1)"),
    "added to what was there": ("*total = 0;", ""),
    "ten bits": ("x[i])", "__int_as_float(__float_as_int(x[i]) & 0xffffe000))"),
    "a scale of 1.001": ("x[i])", "x[i] * (T)1.001)"),
    "a race": ("atomicAdd(total, x[i])", "*total += x[i]"),
}
