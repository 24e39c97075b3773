"""HYB: what has a slot, what is remainder, and where each lies."""

import numpy as np
import pytest

from sparsesmith.formats import Layout, complete_parameters, format_named
from sparsesmith.formats.format import ParameterValue
from sparsesmith.formats.hyb import slice_bases
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices


def build(pattern: Pattern, **given: ParameterValue) -> Layout:
    """Checked to be invertible."""
    format_ = format_named("hyb")
    parameters = complete_parameters(format_, given)
    layout = format_.build(pattern, parameters)
    assert format_.restore(layout, parameters, pattern.num_rows, pattern.num_cols).digest == pattern.digest
    return layout


def arrays(layout: Layout) -> dict[str, list[int]]:
    return {name: array.tolist() for name, array in layout.indices.items()}


def rows_of(*columns: tuple[int, ...], num_cols: int = 10) -> Pattern:
    rows = [row for row, of_row in enumerate(columns) for _ in of_row]
    return pattern_from_indices(len(columns), num_cols, rows, [column for of_row in columns for column in of_row])


RAGGED = rows_of((4, 5), (), (0, 1, 2), (7,), (1, 3, 5, 9))


def test_rows_longer_than_the_width_lie_whole_in_the_remainder_longest_first() -> None:
    layout = build(RAGGED, width=2)
    found = arrays(layout)
    assert dict(layout.sizes) == {"stride": 32, "num_rest_rows": 2}
    assert found["rest_mask"] == [0b10100]
    assert found["rest_rows"] == [4, 2]
    assert found["rest_offsets"] == [0, 4, 7]
    assert found["rest_cols"] == [1, 3, 5, 9, 0, 1, 2]
    assert found["col_indices"][:5] == [4, 0, 0, 7, 0]
    assert found["col_indices"][32:37] == [5, 0, 0, 7, 0]
    assert layout.num_slots == 2 * 32 + 7


def test_coordinates_hold_what_is_beyond_the_width() -> None:
    layout = build(RAGGED, width=2, rest="coo")
    found = arrays(layout)
    assert dict(layout.sizes) == {"stride": 32, "num_rest": 3}
    assert found["rest_rows"] == [2, 4, 4]
    assert found["rest_cols"] == [2, 5, 9]
    assert found["col_indices"][32:37] == [5, 0, 1, 7, 3]


@pytest.mark.parametrize("rest", ["rows", "coo"])
def test_without_a_remainder_its_arrays_hold_one_zero(rest: str) -> None:
    layout = build(RAGGED, width=4, rest=rest)
    assert arrays(layout)["rest_rows"] == arrays(layout)["rest_cols"] == [0]
    assert layout.num_slots == 4 * 32


FAR = rows_of(*[(row, row + 1) for row in range(40)], (3, 90_000), (89_990, 89_999), num_cols=100_000)


def test_sixteen_bits_put_rows_that_reach_too_far_into_the_remainder() -> None:
    layout = build(FAR, width=2, index="u16")
    assert arrays(layout)["rest_rows"] == [40, 41]
    assert arrays(layout)["rest_cols"] == [3, 90_000, 89_990, 89_999]
    assert layout.indices["col_indices"].dtype == np.uint16


def test_sixteen_bits_put_single_nonzeros_that_lie_too_far_off_into_coordinates() -> None:
    layout = build(FAR, width=2, index="u16", rest="coo")
    assert arrays(layout)["rest_rows"] == [40, 41, 41]
    assert arrays(layout)["rest_cols"] == [90_000, 89_990, 89_999]


def test_a_row_that_begins_far_off_still_fills_its_slots_from_the_first() -> None:
    pattern = rows_of((0, 80_000, 80_001), *[(80_000,)] * 31, num_cols=100_000)
    found = arrays(build(pattern, width=2, index="u16", rest="coo"))
    base = found["slice_col_base"][0]
    assert [found["col_indices"][0] + base, found["col_indices"][32] + base] == [80_000, 80_001]
    assert (found["rest_rows"], found["rest_cols"]) == ([0], [0])


def test_a_slice_reaches_from_half_of_65536_before_its_middle_and_stays_in_the_matrix() -> None:
    middles = [0] * 32 + [60_000] * 32 + [99_999] * 32
    pattern = pattern_from_indices(97, 100_000, range(96), middles)
    assert slice_bases(pattern).tolist() == [0, 60_000 - 32_768, 100_000 - 65_536, 0]
    assert not slice_bases(rows_of(*[(9,)] * 40)).any()


@pytest.mark.parametrize("rest", ["rows", "coo"])
@pytest.mark.parametrize("index", ["i32", "u16"])
def test_random_columns_survive_any_split(rest: str, index: str) -> None:
    generator = np.random.default_rng(4)
    rows = np.sort(generator.integers(0, 1000, 5000))
    near = np.clip(rows * 200 + generator.integers(-40_000, 40_000, rows.size), 0, 199_999)
    cells = np.unique(np.stack([rows, near]), axis=1)
    pattern = pattern_from_indices(1000, 200_000, cells[0], cells[1])
    for width in (1, 4, 40):
        layout = build(pattern, width=width, rest=rest, index=index)
        np.testing.assert_array_equal(
            np.sort(layout.pack(np.arange(1.0, 1 + pattern.nnz)))[-pattern.nnz :], np.arange(1.0, 1 + pattern.nnz)
        )
