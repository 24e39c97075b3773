"""By SciPy's QR, in float64."""

import numpy as np
import scipy.linalg

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    a, b = inputs["a"].astype(np.float64), inputs["b"].astype(np.float64)
    q, r = scipy.linalg.qr(a, mode="economic")
    return {"w": scipy.linalg.solve_triangular(r, q.T @ b)}


SPOILED = {
    "nothing eliminated": ("T factor = gram[row * width + pivot] / gram[pivot * width + pivot];", "T factor = 0;"),
    "every second row": ("i < n; i++", "i < n; i += 2"),
    "a scale of 1.001": ("sum / gram[row * width + row]", "sum / gram[row * width + row] * (T)1.001"),
    "zeros": ("w[row] = sum / gram[row * width + row];", "w[row] = 0;"),
}
