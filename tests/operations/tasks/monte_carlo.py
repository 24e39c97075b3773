"""By NumPy, in long double."""

import numpy as np

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"total": np.array(inputs["values"].astype(np.longdouble).mean())}


SPOILED = {
    "every second value": ("(i < n) atomicAdd(total, ", "(i < n && i % 2 == 0) atomicAdd(total, 2 * "),
    "divided by n - 1": ("/= n", "/= n - 1"),
    "a constant": ("atomicAdd(total, values[i])", "*total = (T)0.5"),
    "added to what was there": ("*total = 0;", ""),
}
