"""Statistics that proposals ask for: computed once each, by short cuts where these say the same."""

import numpy as np
import pytest
from hypothesis import given

from sparsesmith.families.estimates.statistics import PatternStatistics, remembered
from sparsesmith.matrix.features import narrow_share_of_nonzeros, narrow_share_of_rows
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from tests.matrix.patterns import mask_of, patterns


def make_pattern() -> Pattern:
    return pattern_from_indices(3, 3, [0, 1, 2], [0, 1, 2])


def test_a_statistic_is_computed_once_for_each_pattern_and_choice_of_arguments() -> None:
    computed: list[tuple[int, int]] = []

    @remembered
    def statistic(shape: PatternStatistics, lanes: int, sigma: int = 0) -> int:
        computed.append((lanes, sigma))
        return shape.pattern.nnz * lanes + sigma

    one, other = PatternStatistics(make_pattern()), PatternStatistics(make_pattern())
    assert [statistic(one, 2), statistic(one, 2), statistic(one, 4), statistic(one, 2, sigma=1)] == [6, 6, 12, 7]
    assert computed == [(2, 0), (4, 0), (2, 1)]
    assert statistic(other, 2) == 6
    assert len(computed) == 4


def test_two_statistics_of_the_same_arguments_do_not_answer_for_each_other() -> None:
    @remembered
    def rows(shape: PatternStatistics, times: int) -> int:
        return times * shape.pattern.num_rows

    @remembered
    def nothing(shape: PatternStatistics, times: int) -> int:
        return 0

    shape = PatternStatistics(make_pattern())
    assert (rows(shape, 2), nothing(shape, 2), rows(shape, 2)) == (6, 0, 6)


@pytest.mark.parametrize("reach", [65_536, 65_537])
def test_a_row_that_reaches_further_than_16_bits_leaves_no_slice_and_no_block_narrow(reach: int) -> None:
    """On both sides of the bound the short cut says what looking at all rows says."""
    rows = np.repeat(np.arange(64, dtype=np.int32), 2)
    columns = np.tile(np.array([0, 100], np.int32), 64)
    columns[41] = reach - 1
    pattern = pattern_from_indices(64, 200_000, rows, columns)
    statistics = PatternStatistics(pattern)
    assert statistics.has_far_reaching_row == (reach > 65_536)
    assert statistics.narrow_slices(32, 1) == (narrow_share_of_rows(pattern.row_spans, 32) == 1.0)
    assert statistics.narrow_row_blocks(16) == (narrow_share_of_nonzeros(pattern.row_spans, pattern, 16) == 1.0)
    assert statistics.narrow_slices(32, 1) == (reach <= 65_536)


@pytest.mark.parametrize("far", [0, 65_500])
def test_a_band_is_narrow_by_its_diagonals_and_where_they_do_not_tell_by_looking(far: int) -> None:
    rows = np.repeat(np.arange(500, dtype=np.int32), 2)
    columns = rows + np.tile(np.array([0, far + 1], np.int32), 500)
    pattern = pattern_from_indices(500, 70_000, rows, columns)
    statistics = PatternStatistics(pattern)
    assert statistics.band == far + 2
    for count in (8, 32, 400):
        assert statistics.narrow_slices(count, 1) == (narrow_share_of_rows(pattern.row_spans, count) == 1.0)
        expected = narrow_share_of_nonzeros(pattern.row_spans, pattern, count) == 1.0
        assert statistics.narrow_row_blocks(count) == expected


def test_empty_rows_do_not_widen_a_band() -> None:
    assert PatternStatistics(pattern_from_indices(900, 900, [3, 800], [3, 801])).band == 2


@given(patterns())
def test_how_far_rows_reach_is_what_looking_at_all_of_them_says(pattern: Pattern) -> None:
    mask = mask_of(pattern)
    held = [np.flatnonzero(row) for row in mask if row.any()]
    reach = max(int(columns[-1] - columns[0]) + 1 for columns in held)
    diagonals = pattern.col_indices - pattern.row_indices()
    statistics = PatternStatistics(pattern)
    for columns in (1, reach - 1, reach, reach + 1, 1000):
        assert PatternStatistics(pattern).rows_reach_within(columns) == (reach <= columns)
    assert statistics.row_reach == reach
    assert statistics.band == int(diagonals.max() - diagonals.min()) + 1
    assert statistics._extents == (reach, statistics.band), "both ways say the same"


def test_row_lengths_vary_as_numpy_says() -> None:
    pattern = pattern_from_indices(4, 9, [0, 0, 0, 2, 3, 3], [0, 1, 8, 4, 2, 5])
    statistics = PatternStatistics(pattern)
    assert statistics.variation == pytest.approx(pattern.row_lengths.std() / pattern.row_lengths.mean())
    assert statistics.longest == 3
