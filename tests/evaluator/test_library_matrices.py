"""What the library is given to multiply, and how often it is converted."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given

from services.evaluator.cuda.library.matrices import SELL_SLICE, HostMatrices, HostMatrix, Unsuited, converted
from sparsesmith.cuda.routines import Storage
from sparsesmith.matrix.pattern import Pattern
from tests.matrix.patterns import make_pattern, mask_of, pattern_of, patterns

STORAGES = (Storage("csr"), Storage("coo"), Storage("sell"), *(Storage("bsr", size) for size in (2, 3, 4, 8)))


def entries_of(matrix: HostMatrix) -> npt.NDArray[np.int64]:
    """Number of the nonzero from 1 at each place, 0 elsewhere, read as the library's documentation says."""
    values = np.arange(1, matrix.num_slots + 1) if matrix.value_sources is None else matrix.value_sources + 1
    dense = np.zeros((matrix.num_rows, matrix.num_cols), np.int64)
    match matrix.storage.kind:
        case "csr":
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
        case "bsr":
            size = matrix.storage.block_size
            blocks = values.reshape(-1, size, size)
            for block_row, (begin, end) in enumerate(zip(matrix.offsets[:-1], matrix.offsets[1:], strict=True)):
                for block in range(begin, end):
                    row, column = block_row * size, matrix.columns[block] * size
                    dense[row : row + size, column : column + size] = blocks[block]
    return dense


def numbered(pattern: Pattern) -> npt.NDArray[np.int64]:
    mask = mask_of(pattern)
    entries = np.zeros(mask.shape, np.int64)
    entries[mask] = np.arange(1, pattern.nnz + 1)
    return entries


@pytest.mark.parametrize("storage", STORAGES, ids=str)
@given(pattern=patterns())
def test_each_nonzero_lies_where_the_library_looks_for_it(storage: Storage, pattern: Pattern) -> None:
    try:
        matrix = converted(pattern, storage)
    except Unsuited:
        assert storage.kind == "sell"
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
