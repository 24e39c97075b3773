import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesmith.errors import InvalidOption
from sparsesmith.matrix import portrait
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.matrix.portrait import Window, bandwidths, density, matrix_card
from sparsesmith_proto.api import BlockFill, RowLengths


def tridiagonal(size: int) -> Pattern:
    rows = [row for row in range(size) for step in (-1, 0, 1) if 0 <= row + step < size]
    cols = [row + step for row in range(size) for step in (-1, 0, 1) if 0 <= row + step < size]
    return pattern_from_indices(size, size, rows, cols)


def test_the_card_of_a_small_matrix_says_what_one_counts_by_hand() -> None:
    card = matrix_card(pattern_from_indices(4, 4, [0, 0, 0, 1, 3, 3, 3, 3, 3][:8], [0, 1, 3, 1, 0, 1, 2, 3]))
    assert (card.num_rows, card.num_cols, card.nnz) == (4, 4, 8)
    assert (card.shortest_row, card.mean_row, card.longest_row) == (0, 2.0, 4)
    assert card.row_lengths == (
        RowLengths(shortest=0, longest=0, num_rows=1),
        RowLengths(shortest=1, longest=1, num_rows=1),
        RowLengths(shortest=2, longest=2, num_rows=0),
        RowLengths(shortest=3, longest=4, num_rows=2),
    )
    assert (card.lower_bandwidth, card.upper_bandwidth) == (3, 3)
    assert card.symmetry == 5 / 8
    assert card.blocks[0] == BlockFill(extent=2, share=8 / 16)


def test_a_band_is_symmetric_and_a_rectangle_has_no_symmetry() -> None:
    assert matrix_card(tridiagonal(50)).symmetry == 1.0
    assert matrix_card(pattern_from_indices(2, 3, [0], [2])).symmetry is None


def test_a_matrix_on_one_side_of_the_diagonal_has_no_bandwidth_on_the_other() -> None:
    assert bandwidths(pattern_from_indices(5, 5, [0, 1], [2, 2])) == (0, 2)
    assert bandwidths(pattern_from_indices(9, 2, [8], [0])) == (8, 0)


@given(st.data())
def test_a_density_counts_every_nonzero_of_the_window_in_its_box(data: st.DataObject) -> None:
    num_rows, num_cols = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 60))
    entry = st.tuples(st.integers(0, num_rows - 1), st.integers(0, num_cols - 1))
    rows, cols = zip(*data.draw(st.lists(entry, min_size=1, max_size=80)), strict=True)
    pattern = pattern_from_indices(num_rows, num_cols, rows, cols)
    first_row, first_col = data.draw(st.integers(0, num_rows - 1)), data.draw(st.integers(0, num_cols - 1))
    end_row = data.draw(st.integers(first_row + 1, num_rows))
    end_col = data.draw(st.integers(first_col + 1, num_cols))
    seen = density(pattern, Window(first_row, end_row, first_col, end_col), data.draw(st.integers(1, 70)))
    expected = np.zeros((seen.grid_rows, seen.grid_cols), int)
    for row, col in zip(pattern.row_indices().tolist(), pattern.col_indices.tolist(), strict=True):
        if first_row <= row < end_row and first_col <= col < end_col:
            box = (row - first_row) * seen.grid_rows // (end_row - first_row)
            expected[box, (col - first_col) * seen.grid_cols // (end_col - first_col)] += 1
    assert seen.counts == tuple(expected.ravel().tolist())


def test_a_long_row_is_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = pattern_from_indices(2, 1000, [0] * 1000, list(range(1000)))
    whole = density(pattern, Window.of(pattern, 0, None, 0, None), 7)
    monkeypatch.setattr(portrait, "PIECE_NNZ", 13)
    assert density(pattern, Window.of(pattern, 0, None, 0, None), 7) == whole
    assert sum(whole.counts) == 1000


@pytest.mark.parametrize(
    ("rows", "cols"), [((0, 11), (0, 1)), ((5, 5), (0, 1)), ((0, 1), (7, 3)), ((10, None), (0, 1))]
)
def test_a_window_outside_the_matrix_is_refused(rows: tuple[int, int | None], cols: tuple[int, int | None]) -> None:
    with pytest.raises(InvalidOption, match="must be 0 <= first_"):
        Window.of(tridiagonal(10), *rows, *cols)
