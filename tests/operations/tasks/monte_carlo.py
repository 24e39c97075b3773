"""By NumPy, in long double."""

import numpy as np

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"total": np.array(inputs["values"].astype(np.longdouble).mean())}


SPOILED = {
    "every second value": ("(i < n) atomicAdd(wide, ", "(i < n && i % 2 == 0) atomicAdd(wide, 2 * "),
    "divided by n - 1": ("/ n;", "/ (n - 1);"),
    "a constant": ("atomicAdd(wide, values[i])", "*wide = 0.5"),
    "added to what was there": ("*wide = 0;", ""),
}
