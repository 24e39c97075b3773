"""What the library is given to multiply, and how often it is converted."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given

from services.evaluator.cuda.library.matrices import (
    SELL_SLICE,
    HostMatrices,
    HostMatrix,
    Unsuited,
    converted,
    is_symmetric,
)
from sparsesmith.cuda.routines import Storage
from sparsesmith.matrix.pattern import Pattern
from tests.matrix.patterns import make_pattern, mask_of, pattern_of, patterns

STORAGES = (Storage("csr"), Storage("coo"), Storage("sell"), *(Storage("bsr", size) for size in (2, 3, 4, 8)))
ELL_STORAGES = tuple(Storage("blocked_ell", size) for size in (2, 8))


def entries_of(matrix: HostMatrix) -> npt.NDArray[np.int64]:
    """Number of the nonzero from 1 at each place, 0 elsewhere, read as the library's documentation says."""
    values = np.arange(1, matrix.num_slots + 1) if matrix.value_sources is None else matrix.value_sources + 1
    dense = np.zeros((matrix.num_rows, matrix.num_cols), np.int64)
    match matrix.storage.kind:
        case "csr" | "lower":
            rows = np.repeat(np.arange(matrix.num_rows), np.diff(matrix.offsets))
            dense[rows, matrix.columns] = values
        case "coo":
            dense[matrix.offsets, matrix.columns] = values
        case "sell":
            for slice_, (begin, end) in enumerate(zip(matrix.offsets[:-1], matrix.offsets[1:], strict=True)):
                for slot in range(begin, end):
                    row = slice_ * SELL_SLICE + (slot - begin) % SELL_SLICE
                    if matrix.columns[slot] >= 0:
                        dense[row, matrix.columns[slot]] = values[slot]
        case "bsr" | "blocked_ell":
            for place, block in blocks_of(matrix, values):
                dense[place] = block
    return dense


def blocks_of(
    matrix: HostMatrix, values: npt.NDArray[np.integer[Any]]
) -> Iterator[tuple[tuple[slice, slice], npt.NDArray[np.integer[Any]]]]:
    """Those that are no padding, each with its rows and columns."""
    size = matrix.storage.block_size
    if matrix.storage.kind == "bsr":
        blocks = values.reshape(-1, size, size)
        block_rows = np.repeat(np.arange(matrix.num_rows // size), np.diff(matrix.offsets))
        for row, column, block in zip(block_rows, matrix.columns, blocks, strict=True):
            yield (slice(row * size, (row + 1) * size), slice(column * size, (column + 1) * size)), block
        return
    of_rows = values.reshape(matrix.num_rows, -1)
    for row, of_row in enumerate(matrix.columns.reshape(matrix.num_rows // size, -1)):
        rows = slice(row * size, (row + 1) * size)
        for place, column in enumerate(of_row):
            block = of_rows[rows, place * size : (place + 1) * size]
            if column >= 0:
                yield (rows, slice(column * size, (column + 1) * size)), block
            else:
                assert not block.any()


def numbered(pattern: Pattern) -> npt.NDArray[np.int64]:
    mask = mask_of(pattern)
    entries = np.zeros(mask.shape, np.int64)
    entries[mask] = np.arange(1, pattern.nnz + 1)
    return entries


@pytest.mark.parametrize("storage", (*STORAGES, *ELL_STORAGES), ids=str)
@given(pattern=patterns())
def test_each_nonzero_lies_where_the_library_looks_for_it(storage: Storage, pattern: Pattern) -> None:
    try:
        matrix = converted(pattern, storage)
    except Unsuited:
        assert storage.kind in ("sell", "blocked_ell")
        return
    entries = entries_of(matrix)
    expected = numbered(pattern)
    assert np.array_equal(entries[: pattern.num_rows, : pattern.num_cols], expected)
    assert entries.sum() == expected.sum()


def test_padding_of_sliced_ell_has_no_column_and_no_source() -> None:
    matrix = converted(make_pattern(*["xxx", "x..", "..."] * 10, "xxx", "xxx"), Storage("sell"))
    assert matrix.value_sources is not None
    assert (matrix.columns == -1).sum() == 10 * (2 + 3)
    assert np.array_equal(matrix.columns == -1, matrix.value_sources == -1)


def test_one_long_row_in_a_slice_does_not_suit_sliced_ell() -> None:
    with pytest.raises(Unsuited, match="would store 1280 slots for 71 nonzeros"):
        converted(make_pattern("x" * 40, *["x" + "." * 39] * 31), Storage("sell"))


def test_a_matrix_is_converted_once_whether_ahead_or_when_asked_for() -> None:
    matrices = HostMatrices(make_pattern(*["xx..", "xx..", "..xx", "..xx"] * 8))
    matrices.convert_ahead(STORAGES)
    assert matrices.held == STORAGES
    held = [matrices.get(storage) for storage in STORAGES]
    assert all(matrices.get(storage) is matrix for storage, matrix in zip(STORAGES, held, strict=True))


def test_what_does_not_suit_is_refused_when_it_is_asked_for() -> None:
    matrices = HostMatrices(make_pattern("x" * 40, *["x" + "." * 39] * 31))
    matrices.convert_ahead([Storage("sell"), Storage("coo")])
    assert matrices.held == (Storage("coo"),)
    with pytest.raises(Unsuited):
        matrices.get(Storage("sell"))


def test_matrices_beyond_the_memory_are_not_converted_ahead_and_not_kept() -> None:
    pattern = make_pattern(*["xx..", "xx..", "..xx", "..xx"] * 8)
    matrices = HostMatrices(pattern, max_bytes=2 * 32 * pattern.nnz)
    matrices.convert_ahead(STORAGES)
    assert matrices.held == STORAGES[:2]
    for storage in STORAGES:
        matrices.get(storage)
    assert sum(matrices.get(storage).num_bytes for storage in matrices.held) <= 2 * 32 * pattern.nnz
    assert STORAGES[-1] in matrices.held


def test_only_what_the_finals_need_is_kept() -> None:
    matrices = HostMatrices(make_pattern("xx", "xx"))
    matrices.convert_ahead(STORAGES)
    matrices.keep_only(Storage("coo"))
    assert matrices.held == (Storage("coo"),)


@pytest.mark.parametrize("storage", STORAGES, ids=str)
def test_a_copy_of_the_transpose_has_each_nonzero_where_the_library_looks_for_it(storage: Storage) -> None:
    pattern = pattern_of(np.random.default_rng(1).random((33, 37)) < 0.6)
    found = converted(pattern, replace(storage, is_transposed=True))
    np.testing.assert_array_equal(entries_of(found)[:37, :33], numbered(pattern).T)


def test_blocked_ell_lies_as_in_the_example_of_the_librarys_samples() -> None:
    matrix = converted(make_pattern("..xx..", "..xx..", "xx..xx", "xx..xx"), Storage("blocked_ell", 2))
    assert matrix.columns.tolist() == [1, -1, 0, 2]
    assert matrix.value_sources is not None
    assert (matrix.value_sources + 1).tolist() == [1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 7, 8, 9, 10, 11, 12]


def test_one_long_block_row_does_not_suit_blocked_ell() -> None:
    with pytest.raises(Unsuited, match="would store 1120 slots for 118 nonzeros"):
        converted(
            make_pattern("x" * 40, *["x" + "." * 39] * 6, "x" * 40, *["x" + "." * 39] * 8, *["xx" + "." * 38] * 12),
            Storage("blocked_ell", 2),
        )


def test_of_a_symmetric_matrix_what_is_not_above_the_diagonal_is_half_of_it() -> None:
    pattern = make_pattern("xx.x", "xx..", "..x.", "x..x")
    lower = converted(pattern, Storage("lower"))
    assert np.array_equal(entries_of(lower), np.tril(numbered(pattern)))
    assert lower.num_slots == 6


@given(pattern=patterns())
def test_a_matrix_is_symmetric_if_it_is_its_own_transpose_and_its_values_are_known(pattern: Pattern) -> None:
    values = np.arange(1, pattern.nnz + 1, dtype=np.float64)
    dense = pattern.to_scipy(values).toarray()
    assert is_symmetric(pattern, values) == (dense.shape[0] == dense.shape[1] and np.array_equal(dense, dense.T))
    assert not is_symmetric(pattern, None)


def test_a_symmetric_pattern_needs_symmetric_values() -> None:
    pattern = make_pattern("xx.", "xx.", "..x")
    assert is_symmetric(pattern, np.array([1.0, 2.0, 2.0, 3.0, 4.0]))
    assert not is_symmetric(pattern, np.array([1.0, 2.0, -2.0, 3.0, 4.0]))
