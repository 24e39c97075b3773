"""Which diagonals a pattern uses."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

from sparsesmith.formats.dia import diagonals_of, num_diagonals
from sparsesmith.matrix.pattern import AT_A_TIME, Pattern, pattern_from_scipy
from tests.matrix.patterns import patterns


def one_by_one(pattern: Pattern) -> list[int]:
    found: list[int] = np.unique(pattern.col_indices.astype(np.int64) - pattern.row_indices()).tolist()
    return found


@given(patterns())
def test_every_diagonal_in_use_is_found(pattern: Pattern) -> None:
    assert diagonals_of(pattern).tolist() == one_by_one(pattern)
    assert num_diagonals(pattern) == len(one_by_one(pattern))


@pytest.mark.parametrize("stray", [0, 3, 40_000])
def test_rows_that_are_alike_hide_no_other_diagonal(stray: int) -> None:
    size = AT_A_TIME // 2
    matrix = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1000, 0, 7], shape=(size, size), format="csr")
    generator = np.random.default_rng(stray)
    rows, cols = generator.integers(0, size, stray), generator.integers(0, size, stray)
    others = sp.csr_array((np.ones(stray), (rows, cols)), (size, size))
    pattern = pattern_from_scipy(matrix + others)
    assert diagonals_of(pattern).tolist() == one_by_one(pattern)


def test_a_row_of_the_usual_length_that_moved_is_seen() -> None:
    columns = np.array([0, 1, 1, 2, 2, 3, 0, 5, 4, 5], np.int32)
    pattern = Pattern(5, 6, np.arange(0, 11, 2, dtype=np.int32), columns)
    assert diagonals_of(pattern).tolist() == [-3, 0, 1, 2]
