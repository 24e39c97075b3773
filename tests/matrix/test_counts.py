"""How often numbers are there: what NumPy says, whichever way is taken."""

import numpy as np
import pytest

from sparsesmith.matrix.counts import COMPARED, how_often
from sparsesmith.matrix.pattern import AT_A_TIME


@pytest.mark.parametrize("largest", [0, 1, COMPARED - 1, COMPARED, 300, AT_A_TIME - 1, AT_A_TIME, 3 * AT_A_TIME])
@pytest.mark.parametrize("size", [1, 1000, AT_A_TIME + 1])
def test_numbers_are_counted_as_numpy_counts_them(largest: int, size: int) -> None:
    numbers = np.random.default_rng(size).integers(0, largest + 1, size).astype(np.int32)
    numbers[size // 2] = largest
    np.testing.assert_array_equal(how_often(numbers), np.bincount(numbers))


def test_nothing_is_there_never() -> None:
    assert how_often(np.empty(0, np.int32)).size == 0
