"""Structural features."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.measure.instant import named_patterns
from sparsesmith.matrix.features import (
    FEATURE_NAMES,
    NUM_FEATURES,
    QUANTILES,
    WINDOW_ROWS,
    _counts,
    _gini,
    _largest,
    _median,
    _quantile,
    block_fill,
    distinct_diagonals,
    ell_padding,
    narrow_share_of_nonzeros,
    narrow_share_of_rows,
    sample_windows,
    sell_padding,
    structural_features,
)
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices, pattern_from_scipy


def full(rows: int, cols: int) -> Pattern:
    offsets = np.arange(0, (rows + 1) * cols, cols, np.int32)
    return Pattern(rows, cols, offsets, np.tile(np.arange(cols, dtype=np.int32), rows))


def test_blocks_are_seen_in_rows_longer_than_a_window() -> None:
    pattern = full(99, 5004)
    assert [block_fill(pattern, extent, extent) for extent in (2, 3, 4)] == [1.0, 1.0, 1.0]
    one_row, first_column = np.zeros(300_000, np.int64), np.arange(300_000)
    single = pattern_from_indices(50, 300_000, one_row, first_column)
    assert block_fill(single, 4, 4) == 0.0


def features_of(pattern: Pattern) -> dict[str, float]:
    return dict(zip(FEATURE_NAMES, structural_features(pattern).tolist(), strict=True))


def banded(size: int = 500, offsets: tuple[int, ...] = (-1, 0, 1)) -> Pattern:
    return pattern_from_scipy(sp.diags([1.0] * len(offsets), offsets, shape=(size, size), format="csr"))


def scattered(rows: int = 400, cols: int = 300, density: float = 0.02) -> Pattern:
    return pattern_from_scipy(sp.random(rows, cols, density, format="csr", random_state=np.random.default_rng(3)))


def dense_blocks(extent: int) -> Pattern:
    blocks = sp.random(60, 60, 0.05, format="csr", random_state=np.random.default_rng(4))
    return pattern_from_scipy(sp.kron(blocks, np.ones((extent, extent)), format="csr"))


@given(
    rows=st.integers(1, 60),
    cols=st.integers(1, 60),
    nonzeros=st.lists(st.tuples(st.integers(0, 59), st.integers(0, 59)), min_size=1, max_size=80),
)
@settings(max_examples=60, deadline=None)
def test_every_pattern_has_finite_features_of_moderate_size(
    rows: int, cols: int, nonzeros: list[tuple[int, int]]
) -> None:
    pattern = pattern_from_indices(rows, cols, [r % rows for r, _ in nonzeros], [c % cols for _, c in nonzeros])
    features = structural_features(pattern)
    assert features.shape == (NUM_FEATURES,)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()
    assert np.abs(features).max() <= 6


def test_feature_names_are_distinct() -> None:
    assert len(set(FEATURE_NAMES)) == NUM_FEATURES


def test_the_row_length_histogram_counts_every_row_once() -> None:
    features = features_of(pattern_from_indices(5, 9, [0, 1, 1, 2, 2, 2, 2, 2], [0, 1, 2, 0, 1, 2, 3, 4]))
    bins = [features[name] for name in FEATURE_NAMES if name.startswith("row_length_bin_")]
    assert bins[:5] == pytest.approx([0.4, 0.2, 0.2, 0.0, 0.2])
    assert sum(bins) == pytest.approx(1)


def test_a_stencil_shows_its_diagonals() -> None:
    features = features_of(banded(offsets=(-20, -1, 0, 1, 20)))
    assert features["log_diagonals"] == pytest.approx(np.log2(5) / 4)
    assert features["top_16_diagonals"] == pytest.approx(1)
    assert features["symmetry"] == pytest.approx(1)
    assert features["within_1_of_diagonal"] == pytest.approx(0.6, abs=0.02)


def test_a_triangular_pattern_is_not_symmetric() -> None:
    features = features_of(banded(offsets=(1, 2, 3)))
    assert features["symmetry"] == 0
    assert features["upper_share"] == 1


@pytest.mark.parametrize("extent", [2, 3, 4])
def test_dense_blocks_are_seen_as_filled(extent: int) -> None:
    assert block_fill(dense_blocks(extent), extent, extent) == pytest.approx(1)
    assert features_of(dense_blocks(extent))[f"block_fill_{extent}"] == pytest.approx(1)


def test_a_scattered_pattern_has_no_dense_blocks() -> None:
    assert block_fill(scattered(), 4, 4) < 0.15


def test_a_long_row_shows_in_the_tail_features() -> None:
    rows = np.concatenate([np.arange(1000), np.full(500, 7)])
    cols = np.concatenate([np.arange(1000), np.arange(500) * 2])
    skewed, even = features_of(pattern_from_indices(1000, 1000, rows, cols)), features_of(banded(1000))
    assert skewed["log_row_max_over_mean"] > 1.5 > even["log_row_max_over_mean"]
    assert skewed["row_gini"] > even["row_gini"]
    assert skewed["share_of_longest_percent"] > 0.3


def test_neighbouring_columns_touch_few_sectors() -> None:
    assert features_of(banded(5000))["sectors_per_warp"] < 0.2
    assert features_of(scattered(2000, 100_000, 1e-4))["sectors_per_warp"] > 0.9


def test_sorting_rows_lowers_the_padding_of_slices() -> None:
    lengths = np.tile(np.array([1, 9], np.int32), 512)
    assert sell_padding(lengths, 32, 1) == pytest.approx(9 / 5)
    assert sell_padding(lengths, 32, 256) == pytest.approx(1)
    assert sell_padding(lengths, 32, 0) == pytest.approx(1)


def test_rows_that_do_not_fill_the_last_slice_count_as_padding() -> None:
    assert sell_padding(np.full(33, 4, np.int32), 32, 1) == pytest.approx(64 / 33)
    assert sell_padding(np.full(300, 4, np.int32), 32, 256) == pytest.approx(320 / 300)


def test_ell_padding_is_longest_over_mean() -> None:
    assert ell_padding(pattern_from_indices(2, 4, [0, 0, 0, 1], [0, 1, 2, 0])) == pytest.approx(1.5)


def test_distinct_diagonals_counts_exactly_on_small_patterns() -> None:
    assert distinct_diagonals(banded(offsets=(-7, 0, 3))) == 3


def test_narrow_shares_tell_where_16_bit_offsets_reach() -> None:
    near = pattern_from_indices(4, 200_000, [0, 1, 2, 3], [0, 60_000, 120_000, 180_000])
    spans = near.row_spans
    assert narrow_share_of_rows(spans, 2) == 1
    assert narrow_share_of_rows(spans, 4) == 0
    assert narrow_share_of_nonzeros(spans, near, 1) == 1
    assert narrow_share_of_nonzeros(spans, near, 4) == 0


def test_an_empty_row_block_is_narrow() -> None:
    pattern = pattern_from_indices(64, 100_000, [0, 0], [0, 99_999])
    assert narrow_share_of_rows(pattern.row_spans, 32) == pytest.approx(0.5)


def test_fewer_windows_see_the_same_where_they_hold_all() -> None:
    pattern = pattern_from_scipy(sp.random(300, 300, 0.05, format="csr", rng=np.random.default_rng(1)))
    assert structural_features(pattern, 16).tolist() == structural_features(pattern).tolist()


def test_fewer_windows_of_rows_still_know_the_longest_and_are_finite_where_they_see_nothing() -> None:
    """Two hundred thousand rows, of which only the last two hold anything."""
    rows = np.repeat([199_998, 199_999], [3, 500]).astype(np.int32)
    columns = np.concatenate([np.arange(3), np.arange(500)]).astype(np.int32)
    pattern = pattern_from_indices(200_000, 1000, rows, columns)
    few, all_of_it = structural_features(pattern, 16), structural_features(pattern)
    longest = FEATURE_NAMES.index("log_row_max")
    assert np.isfinite(few).all()
    assert few[longest] == all_of_it[longest]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60))
def test_what_is_counted_and_picked_is_what_numpy_says(numbers: list[int]) -> None:
    array = np.array(numbers, np.int32)
    assert _median(array) == np.median(array)
    assert _counts(array).tolist() == np.unique(array, return_counts=True)[1].tolist()
    assert [_quantile(np.sort(array), share) for share in QUANTILES] == np.quantile(array, QUANTILES).tolist()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60).filter(any))
def test_the_gini_coefficient_follows_from_how_many_there_are_of_each(numbers: list[int]) -> None:
    ascending, counts = np.sort(np.array(numbers)), np.bincount(numbers)
    differences = np.abs(ascending[:, None] - ascending).sum()
    expected = float(differences / (2 * ascending.size * ascending.sum()))
    assert _gini(np.arange(counts.size), counts) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(1, 5))
def test_the_largest_counts_are_the_last_in_order(counts: list[int], most: int) -> None:
    assert _largest(np.array(counts), most).tolist() == sorted(counts, reverse=True)[:most]


@pytest.mark.parametrize("extents", [(2, 2), (3, 3), (4, 2), (1, 2)])
@pytest.mark.parametrize("num_windows", [2, 64])
@pytest.mark.parametrize("num_cols", [50, 3000, 2_000_000_000])
def test_block_fill_counts_the_blocks_of_whole_rows_of_blocks_in_each_window(
    extents: tuple[int, int], num_windows: int, num_cols: int
) -> None:
    """Window by window, nonzero by nonzero; of columns so many that numbers of blocks need 64 bits, too."""
    random, (height, width) = np.random.default_rng(3), extents
    rows, cols = np.sort(random.integers(1000, size=20_000)), random.integers(num_cols, size=20_000)
    pattern = pattern_from_indices(1001, num_cols, rows, cols)
    sample = sample_windows(pattern, num_windows)
    held, blocks = 0, 0
    for begin, of_window, columns in zip(sample.begins.tolist(), sample.rows, sample.cols, strict=True):
        inside = [
            (row // height, col // width)
            for row, col in zip(of_window.tolist(), columns.tolist(), strict=True)
            if begin <= pattern.row_offsets[row // height * height]
            and row // height * height + height <= pattern.num_rows
            and pattern.row_offsets[row // height * height + height] <= begin + of_window.size
        ]
        held, blocks = held + len(inside), blocks + len(set(inside))
    assert block_fill(pattern, height, width, num_windows) == held / (blocks * height * width)


@pytest.mark.parametrize("nnz", [3e4, 4e5])
def test_diagonals_are_counted_as_in_all_windows_where_it_is_known_how_many_are_in_use(nnz: float) -> None:
    for pattern in named_patterns(nnz).values():
        in_use = int(np.unique(pattern.col_indices - pattern.row_indices()).size)
        assert distinct_diagonals(pattern, in_use) == distinct_diagonals(pattern)


def test_fewer_windows_see_where_narrow_columns_do_in_rows_near_each_other() -> None:
    num_rows = 40 * WINDOW_ROWS
    rows = np.arange(num_rows)
    far = np.where(rows % 32 == 0, 70_000, 0)
    cases = {1.0: rows // 64, 0.0: rows // 64 + far}
    for expected, columns in cases.items():
        pattern = pattern_from_indices(num_rows, 200_000, rows, columns)
        seen = dict(zip(FEATURE_NAMES, structural_features(pattern, 4), strict=True))
        assert (seen["narrow_slices"], seen["narrow_row_blocks"]) == (expected, expected)


@pytest.mark.parametrize("sigma", [0, 1, 2, 3, 8, 96, 64, 256, 1000])
@pytest.mark.parametrize("lanes", [1, 4, 32, 48])
def test_padding_is_that_of_slices_of_sorted_windows(lanes: int, sigma: int) -> None:
    for size in (1, 31, 700):
        lengths = np.random.default_rng(size).integers(0, 50, size).astype(np.int32)
        window = sigma or size
        ordered = np.concatenate([np.sort(lengths[begin : begin + window])[::-1] for begin in range(0, size, window)])
        slots = sum(int(ordered[begin : begin + lanes].max()) * lanes for begin in range(0, size, lanes))
        # A last window that is not whole is filled up before it is sorted: its rows come first all the same.
        if window % lanes == 0 or lanes % window == 0 or window >= size:
            assert sell_padding(lengths, lanes, sigma) == pytest.approx(slots / max(1, int(lengths.sum())))
