"""Patterns from SciPy matrices and from index lists."""

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from sparsesmith.errors import InvalidMatrix, LimitExceeded
from sparsesmith.matrix.pattern import AT_A_TIME, MAX_NNZ, Pattern, pattern_from_indices, pattern_from_scipy
from tests.matrix.patterns import make_pattern, mask_of, pattern_of, patterns


def entries_of(pattern: Pattern) -> list[tuple[int, int]]:
    return list(zip(pattern.row_indices().tolist(), pattern.col_indices.tolist(), strict=True))


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5)), min_size=1))
def test_indices_in_any_order_with_duplicates_make_a_canonical_pattern(entries: list[tuple[int, int]]) -> None:
    rows, cols = zip(*entries, strict=True)
    pattern = pattern_from_indices(9, 6, rows, cols)
    assert entries_of(pattern) == sorted(set(entries))
    assert pattern.row_offsets.dtype == pattern.col_indices.dtype == np.dtype(np.int32)


@given(patterns(), st.sampled_from(["csr", "csc", "coo", "bsr", "lil", "dok"]))
def test_every_scipy_format_gives_the_same_pattern(pattern: Pattern, name: str) -> None:
    matrix = pattern.to_scipy(np.ones(pattern.nnz))
    # Larger blocks store zeros, which are nonzeros of the pattern.
    converted = matrix.tobsr(blocksize=(1, 1)) if name == "bsr" else matrix.asformat(name)
    assert pattern_from_scipy(converted).digest == pattern.digest


def test_explicit_zeros_and_cancelling_duplicates_are_nonzeros() -> None:
    matrix = scipy.sparse.coo_matrix(([0.0, 1.0, -1.0], ([0, 1, 1], [1, 0, 0])), shape=(2, 2))
    assert entries_of(pattern_from_scipy(matrix)) == [(0, 1), (1, 0)]


def test_a_stale_flag_of_scipy_is_not_believed() -> None:
    matrix = scipy.sparse.csr_matrix((np.ones(3), [2, 0, 2], [0, 3]), shape=(1, 3))
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    assert entries_of(pattern_from_scipy(matrix)) == [(0, 0), (0, 2)]


def broken_csr(indices: list[int], offsets: list[int]) -> scipy.sparse.csr_matrix:
    matrix = scipy.sparse.csr_matrix((np.ones(2), [0, 1], [0, 1, 2]), shape=(2, 2))
    matrix.indices = np.array(indices, np.int32)
    matrix.indptr = np.array(offsets, np.int32)
    return matrix


@pytest.mark.parametrize(("indices", "offsets"), [([0, 2], [0, 1, 2]), ([0, -1], [0, 1, 2]), ([0, 1], [0, 5, 2])])
def test_indices_that_contradict_the_shape_are_refused_before_scipy_follows_them(
    indices: list[int], offsets: list[int]
) -> None:
    with pytest.raises(InvalidMatrix):
        pattern_from_scipy(broken_csr(indices, offsets))


def test_coordinates_changed_behind_scipys_back_are_refused() -> None:
    matrix = scipy.sparse.coo_matrix((np.ones(1), ([0], [0])), shape=(2, 2))
    matrix.row[0] = 1_000_000
    with pytest.raises(InvalidMatrix, match=r"outside 0\.\.1"):
        pattern_from_scipy(matrix)


@pytest.mark.parametrize(
    ("rows", "cols", "field"),
    [
        ([0, 1], [0], "col_indices"),
        ([0, 2], [0, 0], "row_indices[1]"),
        ([-1], [0], "row_indices[0]"),
        ([0], [3], "col_indices[0]"),
        ([0.0], [0], "row_indices"),
        ([[0]], [0], "row_indices"),
        ([0], ["x"], "col_indices"),
        ([2**70], [0], "row_indices"),
        ([], [], "nnz"),
    ],
)
def test_bad_index_lists_are_refused_with_the_entry(rows: list[Any], cols: list[Any], field: str) -> None:
    with pytest.raises(InvalidMatrix) as refusal:
        pattern_from_indices(2, 3, rows, cols)
    assert refusal.value.field == field


def test_shapes_are_bounded() -> None:
    with pytest.raises(InvalidMatrix, match="num_rows is 0"):
        pattern_from_indices(0, 3, [], [])
    with pytest.raises(LimitExceeded) as refusal:
        pattern_from_indices(2, MAX_NNZ + 1, [0], [0])
    assert (refusal.value.field, refusal.value.limit) == ("num_cols", str(MAX_NNZ))
    with pytest.raises(InvalidMatrix, match="must be 2"):
        pattern_from_scipy(scipy.sparse.coo_array(np.ones(3)))


def test_a_digest_tells_shape_and_indices_apart() -> None:
    shapes = [
        make_pattern("x.", ".x"),
        make_pattern("x..", ".x."),
        make_pattern("x.", ".x", ".."),
        make_pattern(".x", "x."),
    ]
    assert len({pattern.digest for pattern in shapes}) == len(shapes)


@given(patterns())
def test_row_lengths_and_bytes(pattern: Pattern) -> None:
    mask = mask_of(pattern)
    assert pattern.row_lengths.tolist() == mask.sum(axis=1).tolist()
    assert pattern.num_bytes == 4 * (pattern.num_rows + 1 + pattern.nnz)
    assert pattern_of(mask).digest == pattern.digest


@given(patterns())
def test_the_row_of_a_nonzero_is_found_by_its_place(pattern: Pattern) -> None:
    places = np.arange(pattern.nnz)
    assert pattern.rows_of(places).tolist() == pattern.row_indices().tolist()
    assert pattern.rows_of(places.reshape(-1, 1)[:3]).shape == (min(3, pattern.nnz), 1)
    assert pattern.rows_of(np.array([pattern.nnz])) == pattern.num_rows


def test_digests_stay_what_they_were() -> None:
    # Caches and stored jobs are keyed by it: a change needs a new prefix.
    assert make_pattern("x.").digest == "f236f53efbe70e5e02de78f707c6ec0cf46718b080b0b86155ebb35df0618df3"


@given(patterns(), st.data())
def test_the_rows_of_a_run_of_nonzeros_are_those_of_its_places(pattern: Pattern, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, pattern.nnz))
    end = data.draw(st.integers(begin, pattern.nnz))
    assert pattern.rows_of_run(begin, end).tolist() == pattern.rows_of(np.arange(begin, end)).tolist()


def test_rows_of_nonzeros_are_known_beyond_what_is_counted_at_a_time() -> None:
    lengths = np.tile([3, 0, 5, 1], AT_A_TIME // 4)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
    pattern = Pattern(lengths.size, 5, offsets, columns)
    np.testing.assert_array_equal(pattern.row_indices(), np.repeat(np.arange(lengths.size), lengths))


@given(patterns())
def test_spans_are_the_first_and_last_column_of_each_row(pattern: Pattern) -> None:
    for row, first, last in zip(mask_of(pattern), *pattern.row_spans, strict=True):
        held = np.flatnonzero(row)
        assert (first, last) == ((held[0], held[-1]) if held.size else (np.iinfo(np.int32).max, -1))


@given(patterns(), st.data())
def test_spans_of_few_rows_are_those_of_all(pattern: Pattern, data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, pattern.num_rows - 1), max_size=1 + pattern.num_rows // 9)))
    rows = np.array(chosen, np.intp)
    before = pattern.spans_of(rows)
    of_all = [spans[rows].tolist() for spans in pattern.row_spans]
    assert [spans.tolist() for spans in before] == of_all
    assert [spans.tolist() for spans in pattern.spans_of(rows)] == of_all


def test_a_pattern_travels_without_what_is_computed_sooner_than_sent() -> None:
    pattern = make_pattern("x.x", "..x")
    digest, lengths, spans = pattern.digest, pattern.row_lengths, pattern.row_spans
    assert len(spans) == 2
    arrived = pickle.loads(pickle.dumps(pattern))
    assert not {"row_lengths", "row_spans"} & arrived.__dict__.keys()
    assert arrived.__dict__["digest"] == digest
    np.testing.assert_array_equal(arrived.row_lengths, lengths)
