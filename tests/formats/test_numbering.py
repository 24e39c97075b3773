"""Rows and columns by other numbers: what is multiplied together comes to lie together."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsesmith.formats.building.numbering import NUMBERINGS, Numbering, numbered_by
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from tests.matrix.patterns import patterns


def scrambled(matrix: sp.csr_matrix, seed: int = 1) -> Pattern:
    generator = np.random.default_rng(seed)
    rows, cols = (generator.permutation(extent) for extent in matrix.shape)
    return pattern_from_scipy(sp.csr_matrix(matrix)[rows][:, cols])


def reach(pattern: Pattern) -> int:
    """Columns from the first to the last of a row, at most."""
    first, last = pattern.row_spans
    return int((last - np.minimum(first, last)).max()) + 1


@pytest.mark.parametrize("numbering", NUMBERINGS)
@settings(max_examples=60, deadline=None)
@given(pattern=patterns())
def test_every_nonzero_keeps_its_row_and_its_column(numbering: Numbering, pattern: Pattern) -> None:
    numbered, _ = numbered_by(pattern, numbering)
    assert sorted(numbered.rows) == list(range(pattern.num_rows))
    assert sorted(numbered.cols) == list(range(pattern.num_cols))
    assert sorted(numbered.sources) == list(range(pattern.nnz))
    of_user = numbered.rows[numbered.pattern.row_indices()], numbered.cols[numbered.pattern.col_indices]
    np.testing.assert_array_equal(of_user[0], pattern.row_indices()[numbered.sources])
    np.testing.assert_array_equal(of_user[1], pattern.col_indices[numbered.sources])
    same_row = np.diff(numbered.pattern.row_indices()) == 0
    assert (np.diff(numbered.pattern.col_indices)[same_row] > 0).all()


@pytest.mark.parametrize(
    ("matrix", "most"),
    [
        (sp.diags([1.0, 1.0, 1.0], [-1, 0, 1], shape=(500, 500)), 6),
        (sp.diags([1.0, 1.0, 1.0], [0, 1, 2], shape=(400, 402)), 6),
        (sp.kron(sp.eye(30), np.ones((5, 3))), 3),
    ],
    ids=["a path", "wider than tall", "blocks"],
)
def test_breadth_finds_a_narrow_band_again(matrix: sp.spmatrix, most: int) -> None:
    pattern = scrambled(matrix)
    assert reach(pattern) > 20 * most
    assert reach(numbered_by(pattern, "breadth")[0].pattern) <= most


def test_popular_columns_come_first_and_rows_stay() -> None:
    pattern = pattern_from_scipy(sp.csr_matrix([[0, 1, 0, 1], [0, 0, 0, 1], [1, 1, 0, 1]]))
    numbered, _ = numbered_by(pattern, "popular")
    assert numbered.cols.tolist() == [3, 1, 0, 2]
    assert numbered.rows.tolist() == [0, 1, 2]


@settings(max_examples=20, deadline=None)
@given(pattern=patterns(), numbering=st.sampled_from(NUMBERINGS))
def test_a_pattern_is_numbered_once_and_its_time_is_told_again(pattern: Pattern, numbering: Numbering) -> None:
    first, saved_ms = numbered_by(pattern, numbering)
    again, saved_again_ms = numbered_by(pattern, numbering)
    assert again is first
    assert (saved_ms, saved_again_ms) == (0, first.taken_ms)
