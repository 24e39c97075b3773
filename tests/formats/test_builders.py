"""What single formats promise beyond being invertible."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats import complete_parameters, format_named
from sparsesmith.formats.building.windows import LONGEST_ROW, MOST_SLOTS
from sparsesmith.formats.csr_rowblocks import ROWS_AT_A_TIME, partition
from sparsesmith.formats.format import Layout, ParameterValue, refuse_overflow
from sparsesmith.formats.sell import sorted_rows
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from tests.matrix.patterns import make_pattern, pattern_of, patterns


def built(name: str, pattern: Pattern, **given: ParameterValue) -> Layout:
    format_ = format_named(name)
    return format_.build(pattern, complete_parameters(format_, given))


def indices_of(pattern: Pattern, name: str, **given: ParameterValue) -> dict[str, list[int]]:
    return {key: array.tolist() for key, array in built(name, pattern, **given).indices.items()}


def greedy_partition(row_lengths: list[int], nnz_per_block: int, max_rows: int) -> list[int]:
    """One row at a time."""
    boundaries, rows, nnz = [0], 0, 0
    for row, length in enumerate(row_lengths):
        if rows and (nnz + length > nnz_per_block or rows == max_rows):
            boundaries.append(row)
            rows = nnz = 0
        rows, nnz = rows + 1, nnz + length
    return [*boundaries, len(row_lengths)]


@settings(max_examples=200)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=80), st.integers(1, 50), st.integers(1, 20))
def test_row_blocks_are_the_greedy_partition(row_lengths: list[int], nnz_per_block: int, max_rows: int) -> None:
    offsets = np.concatenate([[0], np.cumsum(row_lengths)]).astype(np.int32)
    assert partition(offsets, nnz_per_block, max_rows).tolist() == greedy_partition(
        row_lengths, nnz_per_block, max_rows
    )


def test_row_blocks_cross_the_windows_of_the_search() -> None:
    num_rows = ROWS_AT_A_TIME * 2 + 17
    boundaries = partition(np.arange(num_rows + 1, dtype=np.int32), 1000, 4096)
    assert boundaries.tolist() == [*range(0, num_rows, 1000), num_rows]


def merge_path(row_offsets: list[int], items: int) -> list[tuple[int, int]]:
    """Walks the path item by item: a row's nonzeros, then its end."""
    row, nonzero, coordinates = 0, 0, []
    num_rows, nnz = len(row_offsets) - 1, row_offsets[-1]
    for step in range(num_rows + nnz):
        if step % items == 0:
            coordinates.append((row, nonzero))
        if nonzero < row_offsets[row + 1]:
            nonzero += 1
        else:
            row += 1
    return [*coordinates, (num_rows, nnz)]


@settings(max_examples=100, deadline=None)
@given(patterns(), st.integers(8, 40))
def test_merge_segments_are_equal_steps_of_the_merge_path(pattern: Pattern, items: int) -> None:
    arrays = indices_of(pattern, "csr_merge", items=items)
    found = list(zip(arrays["segment_rows"], arrays["segment_offsets"], strict=True))
    assert found == merge_path(pattern.row_offsets.tolist(), items)


@settings(max_examples=100, deadline=None)
@given(patterns(), st.integers(8, 40))
def test_nonzero_segments_are_equal_and_name_the_row_that_holds_their_first(pattern: Pattern, items: int) -> None:
    arrays = indices_of(pattern, "csr_merge", items=items, balance="nnz")
    assert arrays["segment_offsets"] == [*range(0, pattern.nnz, items), pattern.nnz]
    rows = pattern.row_indices().tolist()
    assert arrays["segment_rows"][1:-1] == [rows[offset] for offset in arrays["segment_offsets"][1:-1]]
    assert (arrays["segment_rows"][0], arrays["segment_rows"][-1]) == (0, pattern.num_rows)


def test_ell_pads_with_the_last_column_and_zero_in_an_empty_row() -> None:
    arrays = indices_of(make_pattern(".x.x", "....", "..x."), "ell")
    assert arrays["col_indices"][:3] == [1, 0, 2]
    assert arrays["col_indices"][32:35] == [3, 0, 2]
    assert set(arrays["col_indices"][3:32]) == {0}


def test_sell_pads_a_lane_with_its_last_column_and_an_empty_one_with_the_smallest() -> None:
    arrays = indices_of(make_pattern(".x.x", "....", "..x."), "sell", slice=4)
    assert arrays == {
        "slice_offsets": [0, 8],
        "row_permutation": [0, 1, 2, -1],
        "col_indices": [1, 1, 2, 1, 3, 1, 2, 1],
    }
    narrow = indices_of(make_pattern(".x.x", "....", "..x."), "sell", slice=4, index="u16")
    assert (narrow["slice_col_base"], narrow["col_indices"]) == ([1], [0, 0, 1, 0, 2, 0, 1, 0])


def slots_in_turn(rows: list[list[int]], reach: int) -> list[tuple[int, list[int]]]:
    """Base and column offsets of each slot (-1: the lane waits), slot by slot."""
    left = [list(row) for row in rows]
    slots = []
    while any(left):
        base = min(row[0] for row in left if row)
        taken = [row.pop(0) - base if row and row[0] - base < reach else -1 for row in left]
        slots.append((base, taken))
    return slots


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 2000), max_size=6), min_size=1, max_size=24).filter(any),
    st.sampled_from([4, 8]),
)
def test_lanes_wait_for_a_slot_whose_base_their_next_column_is_near(columns: list[set[int]], lanes: int) -> None:
    rows = [sorted(row) for row in columns]
    pattern = pattern_of(np.array([np.isin(np.arange(2001), row) for row in rows]))
    expected = [slots_in_turn(rows[first : first + lanes], 256) for first in range(0, len(rows), lanes)]
    num_slots = sum(map(len, expected))
    plain = sum(max(map(len, rows[first : first + lanes])) for first in range(0, len(rows), lanes))
    if num_slots > MOST_SLOTS * plain:
        with pytest.raises(InvalidProgram, match="index=u8 does not fit"):
            indices_of(pattern, "sell", slice=lanes, index="u8")
        return
    layout = built("sell", pattern, slice=lanes, sigma=1, index="u8")
    assert layout.value_sources is not None
    found = np.where(layout.value_sources < 0, -1, layout.indices["col_indices"].astype(int)).reshape(-1, lanes)
    assert np.diff(layout.indices["slice_offsets"]).tolist() == [lanes * len(slots) for slots in expected]
    assert layout.indices["slot_col_base"].tolist() == [base for slots in expected for base, _ in slots]
    assert found.tolist() == [taken + [-1] * (lanes - len(taken)) for slots in expected for _, taken in slots]
    assert not layout.indices["col_indices"][layout.value_sources < 0].any()


def test_eight_bits_reach_far_where_neighbouring_rows_do_and_sixteen_from_a_slot_across_65536_columns() -> None:
    diagonals = scipy.sparse.diags([1.0] * 4, [0, 1, 40_000, 90_000], shape=(256, 100_000))
    pattern = pattern_from_scipy(diagonals)
    assert len(indices_of(pattern, "sell", index="u8")["slot_col_base"]) == 4 * 8
    assert len(indices_of(pattern, "sell", index="u16_slot")["slot_col_base"]) == 4 * 8
    with pytest.raises(InvalidProgram, match="65536"):
        indices_of(pattern, "sell", index="u16")


def test_a_row_too_long_to_be_cut_slot_by_slot_is_refused() -> None:
    with pytest.raises(InvalidProgram, match="the longest row has 16385 nonzeros") as refusal:
        indices_of(pattern_of(np.ones((1, LONGEST_ROW + 1), dtype=bool)), "sell", index="u8")
    assert (refusal.value.field, refusal.value.limit) == ("index", str(LONGEST_ROW))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(0, 20))
def test_rows_are_sorted_by_length_within_their_windows_only(lengths: list[int], sigma: int) -> None:
    order = sorted_rows(np.array(lengths, np.int32), sigma).tolist()
    window = sigma or len(lengths)
    expected = [
        row
        for start in range(0, len(lengths), window)
        for row in sorted(range(start, min(start + window, len(lengths))), key=lambda row: -lengths[row])
    ]
    assert order == expected


def test_diagonals_are_ascending_and_only_those_in_use() -> None:
    assert indices_of(make_pattern("x..x", ".x..", "x..."), "dia")["diagonal_offsets"] == [-2, 0, 3]


def test_blocks_are_ascending_in_their_row() -> None:
    arrays = indices_of(make_pattern("...x.", "xx...", ".....", "....x"), "bsr")
    assert arrays == {"block_row_offsets": [0, 2, 3], "block_col_indices": [0, 1, 2]}


def test_a_size_beyond_32_bits_is_refused_with_its_limit() -> None:
    refuse_overflow("ell", "stride", 2**31 - 1)
    with pytest.raises(InvalidProgram, match="stride is 2147483648") as refusal:
        refuse_overflow("ell", "stride", 2**31)
    assert refusal.value.limit == str(2**31 - 1)


def tiles_of(pattern: Pattern, **given: ParameterValue) -> dict[str, list[int]]:
    return indices_of(pattern, "csr_tiles", **{"chunks": 1, "vector": 2, "max_rows": 3, **given})


def test_a_tile_ends_before_the_row_or_the_nonzero_too_many() -> None:
    arrays = tiles_of(pattern_of(np.arange(50) < np.array([[40], [20], [10], [0], [0], [0], [0]])))
    assert arrays["tile_rows"] == [0, 2, 2, 5, 5, 7]
    assert arrays["local_offsets"] == [0, 40, 60, 60, 0, 10, 10, 10, 0, 0, 0, 0]


def test_lanes_of_a_tile_load_side_by_side_what_lies_a_warp_apart() -> None:
    columns = tiles_of(make_pattern("x" * 60))["col_indices"]
    assert columns[0::2] == list(range(32))
    assert columns[1::2] == [*range(32, 60), 59, 59, 59, 59]


def test_a_sorted_tile_says_where_each_product_belongs_and_padding_belongs_behind() -> None:
    arrays = tiles_of(make_pattern("..x.x", "x...x", ".x..."), order="column")
    assert arrays["places"][0:12:2] == [2, 4, 0, 1, 3, 5]
    assert arrays["col_indices"][0:12:2] == [0, 1, 2, 4, 4, 4]
    assert sorted(arrays["places"]) == list(range(64))


def test_rows_are_packed_in_the_order_asked_for() -> None:
    pattern = make_pattern("..x.", "....", "xxx.", "...x", "x...")
    assert tiles_of(pattern, rows="length")["row_ids"] == [2, 0, 3, 4, 1, -1]
    assert tiles_of(pattern, rows="column")["row_ids"] == [1, 4, 2, 0, 3, -1]


def test_a_row_longer_than_a_tile_is_refused_or_split_into_pieces_behind_the_whole_tiles() -> None:
    pattern = pattern_of(np.arange(200) < np.array([[3], [150], [5], [65]]))
    with pytest.raises(InvalidProgram, match="150 nonzeros, a tile 64 slots") as refusal:
        tiles_of(pattern)
    assert (refusal.value.value, refusal.value.limit) == ("150", "64")
    format_ = format_named("csr_tiles")
    given: dict[str, ParameterValue] = {"chunks": 1, "vector": 2, "max_rows": 3, "long_rows": "split"}
    layout = format_.build(pattern, complete_parameters(format_, given))
    assert layout.sizes == {"num_tiles": 7, "num_whole_tiles": 2, "num_split_rows": 2}
    assert layout.scratch == {"carry": 5}
    assert layout.indices["tile_rows"].tolist() == [0, 1, 2, 3, 1, 2, 1, 2, 1, 2, 3, 4, 3, 4]
    assert layout.indices["split_rows"].tolist() == [1, 3]
    assert layout.indices["split_pieces"].tolist() == [0, 3, 5]


def test_sixteen_bits_reach_across_a_sorted_chunk_where_they_do_not_across_the_tile() -> None:
    mask = np.zeros((2, 100_000), np.bool_)
    mask[0, :50] = mask[0, 99_950:] = True
    mask[1, 100:114] = mask[1, 99_900:99_914] = True
    with pytest.raises(InvalidProgram, match="65536"):
        tiles_of(pattern_of(mask), chunks=2, index="u16")
    arrays = tiles_of(pattern_of(mask), chunks=2, index="u16", order="column")
    assert arrays["col_base"] == [0, 99_900]


def test_a_row_longer_than_a_block_of_distinct_columns_is_refused() -> None:
    with pytest.raises(InvalidProgram, match="150 nonzeros, a block at most 64") as refusal:
        indices_of(pattern_of(np.arange(200) < np.array([[3], [150]])), "csr_distinct", nnz_per_block=64)
    assert (refusal.value.field, refusal.value.limit) == ("nnz_per_block", "64")


def test_more_row_bounds_than_rows_and_nonzeros_warrant_are_refused() -> None:
    pattern = pattern_of(np.arange(60) < np.full((600, 1), 40))
    with pytest.raises(InvalidProgram, match="lower max_rows") as refusal:
        tiles_of(pattern, max_rows=4096)
    assert (refusal.value.value, refusal.value.limit) == (str(600 * 4097), str(2**20))


def test_a_slice_of_dia_holds_its_part_of_every_diagonal() -> None:
    pattern = pattern_of(np.eye(40, 41, dtype=bool) | np.eye(40, 41, 1, dtype=bool))
    format_ = format_named("dia")
    layout = format_.build(pattern, complete_parameters(format_, {"slice": 32}))
    assert layout.value_sources is not None
    stored = layout.value_sources.reshape(2, 2, 32)
    assert stored[0].tolist() == [list(range(0, 64, 2)), list(range(1, 64, 2))]
    assert stored[1].tolist() == [[*range(64, 80, 2), *[-1] * 24], [*range(65, 80, 2), *[-1] * 24]]


def test_blocks_in_a_slice_lie_in_planes_of_as_many_elements_as_a_vector_takes() -> None:
    format_ = format_named("bsell")
    full = pattern_of(np.ones((6, 3), dtype=bool))
    layout = format_.build(full, complete_parameters(format_, {"block_rows": 3, "block_cols": 3, "slice": 4}))
    assert layout.value_sources is not None
    # Nine elements go one by one: lane 0 has block row 0, lane 1 block row 1, the others none.
    assert layout.value_sources.reshape(9, 4).tolist() == [[e, 9 + e, -1, -1] for e in range(9)]
    layout = format_.build(full, complete_parameters(format_, {"block_rows": 3, "block_cols": 2, "slice": 4}))
    assert layout.value_sources is not None
    # Six elements go in pairs; column 3 is beyond the matrix.
    first_slot = layout.value_sources.reshape(2, 3, 4, 2)[0]
    assert first_slot.tolist() == [[[3 * i, 3 * i + 1], [9 + 3 * i, 10 + 3 * i], [-1, -1], [-1, -1]] for i in range(3)]


def test_strips_of_a_cell_share_the_columns_in_which_any_of_their_rows_has_something() -> None:
    pattern = make_pattern("x..x", ".x..", "....", "..x.", "x...")
    format_ = format_named("cells")
    layout = format_.build(pattern, complete_parameters(format_, {"strips": 2, "height": 2, "pad": 2}))
    assert layout.sizes == {"num_windows": 2, "num_panels": 1, "cell_slots": 16}
    assert layout.indices["cell_offsets"].tolist() == [0, 16, 32]
    assert layout.indices["strip_offsets"].tolist() == [0, 4, 6, 0, 2, 2]
    assert layout.indices["col_indices"][:6].tolist() == [0, 1, 3, 3, 2, 2]
    assert layout.value_sources is not None
    assert layout.value_sources[:12].tolist() == [0, -1, -1, 2, 1, -1, -1, -1, -1, 3, -1, -1]


def test_cells_are_refused_where_hardly_any_holds_something() -> None:
    scattered = diagonal(100_000)
    with pytest.raises(InvalidProgram, match="it is for nearly dense matrices") as refusal:
        format_named("cells").build(scattered, complete_parameters(format_named("cells"), {}))
    assert refusal.value.limit == str(16 * scattered.nnz)


def diagonal(num_rows: int) -> Pattern:
    """A nonzero on each place of the diagonal."""
    return pattern_from_scipy(scipy.sparse.identity(num_rows, format="csr"))
