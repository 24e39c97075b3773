"""By Python's exact sum."""

import math

import numpy as np

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    terms = inputs["x"].astype(np.float64) * inputs["y"].astype(np.float64)
    return {"total": np.array(math.fsum(terms.tolist()))}


SPOILED = {
    "x with itself": ("x[i] * y[i]", "x[i] * x[i]"),
    "the last entry left out": ("i < n)", "i < n - 1)"),
    "added to what was there": ("*total = 0;", ""),
    "ten bits": ("x[i] * y[i]", "__int_as_float(__float_as_int(x[i]) & 0xffffe000) * y[i]"),
}
