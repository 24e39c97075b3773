"""How often numbers are there: `numpy.bincount` without a copy of them all in 64 bits."""

import numpy as np
import numpy.typing as npt

from sparsesmith.matrix.pattern import AT_A_TIME, Int32Array, pieces

COMPARED = 16
"""Numbers below this are compared with each in turn: less work than counting where there are few."""


def how_often(numbers: Int32Array) -> npt.NDArray[np.int64]:
    """Of 0, 1, ... up to the largest of some numbers, none of them negative; as `numpy.bincount`."""
    size = int(numbers.max(initial=-1)) + 1
    if size > AT_A_TIME:
        return np.bincount(numbers)
    counts = np.zeros(size, np.int64)
    for piece in pieces(numbers.size):
        if size <= COMPARED:
            part = numbers[piece].astype(np.uint8)
            counts += [np.count_nonzero(part == number) for number in range(size)]
        else:
            counts += np.bincount(numbers[piece].astype(np.int64), minlength=size)
    return counts
