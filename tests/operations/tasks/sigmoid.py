"""By SciPy."""

from scipy.special import expit

from sparsesmith.operations.operand import Sizes
from sparsesmith.operations.operation import Arrays


def outputs(inputs: Arrays, sizes: Sizes) -> Arrays:
    return {"y": expit(inputs["x"].astype("longdouble"))}


SPOILED = {
    "a hard one": ("1 / (1 + exp(-x[i]))", "x[i] < -3 ? 0 : x[i] > 3 ? 1 : x[i] / 6 + (T)0.5"),
    "the last entry left out": ("i < n", "i < n - 1"),
    "a scale of 1.00001": ("1 / (1", "(T)1.00001 / (1"),
    "overflowing": ("1 / (1 + exp(-x[i]))", "exp(x[i]) / (1 + exp(x[i]))"),
}
