"""Rows gathered by length: which bin, how many lanes, where."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats import complete_parameters, format_named
from sparsesmith.formats.format import NumberList, ParameterValue
from sparsesmith.formats.row_bins import Bin, count_lengths, cut_bins, is_narrow, lanes_of, place_bins
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from tests.matrix.patterns import patterns


def rows_of(*lengths: int, columns: int = 5000) -> Pattern:
    rows = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(rows.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return pattern_from_indices(len(lengths), columns, rows, within)


def arrays(pattern: Pattern, **given: ParameterValue) -> dict[str, list[int]]:
    format_ = format_named("row_bins")
    layout = format_.build(pattern, complete_parameters(format_, given))
    return {name: array.tolist() for name, array in layout.indices.items()} | {
        name: [size] for name, size in layout.sizes.items()
    }


def test_lanes_are_the_least_power_of_two_that_leaves_few_steps() -> None:
    assert [lanes_of(width, 4, 32) for width in (1, 4, 5, 8, 9, 128, 129)] == [1, 1, 2, 2, 4, 32, 32]
    assert [lanes_of(width, 4, 1024) for width in (129, 4096, 9999)] == [64, 1024, 1024]


def test_the_widest_bin_comes_first_and_bins_without_rows_are_left_out() -> None:
    lengths = np.array([1, 40, 0, 2, 300], np.int32)
    assert cut_bins(count_lengths(lengths), (2, 10, 64, 1000), 4, 32) == (
        Bin(width=300, lanes=32, first_warp=0, num_warps=1, first_row=0, first_slot=0),
        Bin(width=40, lanes=16, first_warp=1, num_warps=1, first_row=1, first_slot=320),
        Bin(width=2, lanes=1, first_warp=2, num_warps=1, first_row=3, first_slot=416),
    )


def test_widths_and_warps_say_where_everything_lies() -> None:
    lengths = np.random.default_rng(1).integers(0, 400, 900).astype(np.int32)
    bins = cut_bins(count_lengths(lengths), (3, 50, 400), 2, 128)
    widths = tuple(bin_.width for bin_ in reversed(bins))
    assert place_bins(widths, tuple(bin_.past_warp for bin_ in bins), 2, 128) == bins


def test_a_program_finds_bins_rows_and_columns_as_documented() -> None:
    built = arrays(rows_of(1, 3, 0, 5), widths="1,5", steps=2)
    assert (built["num_bins"], built["num_warps"]) == ([2], [2])
    assert built["bins"] == [0, 4, 0, 0, 1, 1, 8, 64, 2, 0, 40, 96]
    assert built["row_permutation"] == [1, 3, *[-1] * 6, 0, 2, *[-1] * 30]
    # Row 1 has columns 0, 1, 2 in lanes 0 to 2; row 3 columns 0 to 3 in lanes 4 to 7 and 4 in the second step.
    assert built["col_indices"][:8] == [0, 1, 2, 2, 0, 1, 2, 3]
    assert built["col_indices"][32:40] == [2, 2, 2, 2, 4, 4, 4, 4]


def test_a_row_of_several_warps_deals_its_nonzeros_to_all_of_them() -> None:
    built = arrays(rows_of(100), widths="100", steps=1, max_lanes=128)
    assert built["bins"][:4] == [0, 128, 0, 0]
    assert built["row_permutation"] == [0]
    assert built["col_indices"][:101] == [*range(100), 99]


def test_a_row_longer_than_the_last_width_is_refused() -> None:
    with pytest.raises(InvalidProgram) as refusal:
        arrays(rows_of(3, 7), widths="2,6")
    assert (refusal.value.field, refusal.value.value, refusal.value.limit) == ("widths", "7", "6")


def test_the_widest_warp_decides_whether_sixteen_bits_do() -> None:
    near, far = [0, 0], [0, 70_000]
    for columns, expected in ((near, True), (far, False)):
        pattern = pattern_from_indices(2, 80_000, [0, 1], columns)
        bins = cut_bins(count_lengths(pattern.row_lengths), (1,), 1, 32)
        assert is_narrow(pattern, bins) == expected


@pytest.mark.parametrize("value", ["1", "1,2", "-5,0,7"])
def test_a_list_is_ascending_numbers_with_commas(value: str) -> None:
    assert NumberList("0", -10, 10, 3).is_legal(value)


@pytest.mark.parametrize("value", ["", "2,1", "1,1", "1,2,3,4", "11", "-11", "01", "1, 2", "1,", "-0", "+1", 1])
def test_any_other_list_is_refused(value: str | int) -> None:
    assert not NumberList("0", -10, 10, 3).is_legal(value)


@given(st.sets(st.integers(-99, 99), min_size=1, max_size=9))
def test_every_written_list_is_legal(chosen: set[int]) -> None:
    assert NumberList("0", -99, 99, 9).is_legal(",".join(map(str, sorted(chosen))))


def test_a_format_reads_a_list_of_one_number() -> None:
    assert complete_parameters(format_named("row_bins"), {"widths": 7})["widths"] == "7"
    with pytest.raises(InvalidProgram, match="ascending numbers"):
        complete_parameters(format_named("row_bins"), {"widths": "7,3"})


@given(patterns(), st.integers(0, 3))
def test_rows_are_narrow_by_their_distance_where_the_band_is_known(pattern: Pattern, apart: int) -> None:
    """Rows and columns drawn apart, so that some warps are narrow and others are not."""
    rows, cols = pattern.row_indices() * 3000, pattern.col_indices * (8000 * apart) + pattern.row_indices()
    wide = pattern_from_indices(int(rows.max()) + 1, int(cols.max()) + 1, rows, cols)
    first, last = wide.row_spans
    held, places = last >= 0, np.arange(wide.num_rows)
    band = int((last - places)[held].max() - (first - places)[held].min()) + 1
    counted = count_lengths(wide.row_lengths)
    for limits in ((int(counted.lengths[-1]),), tuple(map(int, np.unique(np.maximum(counted.lengths, 1))))):
        bins = cut_bins(counted, limits, 1, 32)
        assert is_narrow(wide, bins, band) == is_narrow(wide, bins)


def test_lengths_far_beyond_the_number_of_rows_are_counted_alike() -> None:
    for lengths in ([5, 5, 0, 2], [5, 100_000, 0, 5]):
        counted = count_lengths(np.array(lengths, np.int32))
        assert (counted.lengths.tolist(), counted.num_rows.tolist()) == (
            np.unique(lengths).tolist(),
            np.unique(lengths, return_counts=True)[1].tolist(),
        )
