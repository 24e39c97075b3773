"""A matrix in the library's formats on the host: each converted once, for all routines on it (needs no device)."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt

from services.evaluator.cores import num_cores
from sparsesmith.cuda.routines import Storage
from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.bsr import Bsr
from sparsesmith.formats.building.lanes import Lanes, padded_row_offsets
from sparsesmith.matrix.pattern import MAX_NNZ, Int32Array, Pattern

SELL_SLICE = 32
MAX_SELL_PADDING = 4.0
"""Sliced-ELL is tried up to this many slots a nonzero."""

MAX_ELL_PADDING = 4.0
"""The same of blocked ELL."""

MAX_HELD_BYTES = 4 * 2**30
"""Host memory for converted matrices of one workload; the least recently used go first."""
BYTES_A_NONZERO = 32
"""More than any conversion that is not refused takes for a nonzero: columns and sources of sliced ELL."""

_NO_COLUMN = -1
"""How the library marks padding in sliced ELL; our own format repeats a column that exists."""


class Unsuited(Exception):
    """A format of the library does not suit the pattern."""


@dataclass(frozen=True, eq=False)
class HostMatrix:
    """The index arrays of A in one of the library's formats."""

    storage: Storage
    offsets: Int32Array
    """Row offsets; the row of each nonzero in coo; slice offsets in sell; block row offsets in bsr and, though the
    library does not need them, in blocked ELL."""
    columns: Int32Array
    """Columns, block columns in bsr and blocked ELL."""
    value_sources: Int32Array | None
    """As in Layout."""
    num_slots: int
    num_rows: int
    """Rows and columns as the library sees them: blocks pad them."""
    num_cols: int
    conversion_ms: float
    """Time to convert from CSR, of one thread."""

    @property
    def num_bytes(self) -> int:
        arrays = (self.offsets, self.columns, self.value_sources)
        return sum(array.nbytes for array in arrays if array is not None)


class HostMatrices:
    """The matrices of one pattern, converted when first asked for, or ahead on all cores."""

    def __init__(self, pattern: Pattern, *, max_bytes: int = MAX_HELD_BYTES) -> None:
        self._pattern = pattern
        self._max_bytes = max_bytes
        self._held: OrderedDict[Storage, HostMatrix] = OrderedDict()

    def get(self, storage: Storage) -> HostMatrix:
        """Raises Unsuited."""
        return self._hold(self._held.get(storage) or converted(self._pattern, storage))

    def convert_ahead(self, storages: Sequence[Storage]) -> None:
        """Converts as many as the memory holds on all cores. To be called while nothing is timed.

        What does not suit the pattern is left to `get`.
        """
        fitting = storages[: self._max_bytes // (BYTES_A_NONZERO * self._pattern.nnz)]
        with ThreadPoolExecutor(num_cores()) as threads:
            for matrix in threads.map(self._converted_or_none, fitting):
                if matrix is not None:
                    self._hold(matrix)

    def keep_only(self, storage: Storage) -> None:
        """Forgets all others."""
        for other in [held for held in self._held if held != storage]:
            del self._held[other]

    @property
    def held(self) -> tuple[Storage, ...]:
        """What need not be converted, the least recently used first."""
        return tuple(self._held)

    def _converted_or_none(self, storage: Storage) -> HostMatrix | None:
        try:
            return converted(self._pattern, storage)
        except Unsuited:
            return None

    def _hold(self, matrix: HostMatrix) -> HostMatrix:
        self._held[matrix.storage] = matrix
        self._held.move_to_end(matrix.storage)
        while len(self._held) > 1 and sum(held.num_bytes for held in self._held.values()) > self._max_bytes:
            self._held.popitem(last=False)
        return matrix


def converted(pattern: Pattern, storage: Storage) -> HostMatrix:
    """A in that format, or A^T where that is what is stored. Raises Unsuited."""
    if not storage.is_transposed:
        return _converted(pattern, storage)
    started = time.thread_time()
    transpose, order = pattern.transposed
    transposing_ms = (time.thread_time() - started) * 1e3
    found = _converted(transpose, replace(storage, is_transposed=False))
    sources = found.value_sources
    places = order if sources is None else np.where(sources < 0, -1, order[np.maximum(sources, 0)])
    return replace(
        found,
        storage=storage,
        value_sources=places.astype(np.int32, copy=False),
        conversion_ms=found.conversion_ms + transposing_ms,
    )


def _converted(pattern: Pattern, storage: Storage) -> HostMatrix:
    # The thread's own time: others convert beside it, a user's conversion runs alone.
    started = time.thread_time()
    num_rows, num_cols = pattern.num_rows, pattern.num_cols
    sources: Int32Array | None = None
    match storage.kind:
        case "csr":
            offsets, columns = pattern.row_offsets, pattern.col_indices
        case "coo":
            offsets, columns = pattern.row_indices(), pattern.col_indices
        case "sell":
            offsets, columns, sources = _sliced_ell(pattern)
        case "bsr":
            size = storage.block_size
            offsets, columns, sources = _blocks(pattern, size)
            num_rows, num_cols = -(-num_rows // size) * size, -(-num_cols // size) * size
        case "blocked_ell":
            size = storage.block_size
            offsets, columns, sources = _blocked_ell(pattern, size)
            num_rows, num_cols = -(-num_rows // size) * size, -(-num_cols // size) * size
        case "lower":
            offsets, columns, sources = _lower(pattern)
        case _:
            assert_never(storage.kind)
    conversion_ms = 0.0 if storage.kind == "csr" else (time.thread_time() - started) * 1e3
    num_slots = pattern.nnz if sources is None else sources.size
    return HostMatrix(storage, offsets, columns, sources, num_slots, num_rows, num_cols, conversion_ms)


def _sliced_ell(pattern: Pattern) -> tuple[Int32Array, Int32Array, Int32Array]:
    offsets = padded_row_offsets(pattern, SELL_SLICE)
    first, past = offsets[:-1].reshape(-1, SELL_SLICE), offsets[1:].reshape(-1, SELL_SLICE)
    widths = (past - first).max(axis=1)
    lanes = Lanes(first, past, first == past, widths, np.zeros(widths.size, np.int32))
    if lanes.num_slots > min(MAX_SELL_PADDING * pattern.nnz, MAX_NNZ):
        raise Unsuited(f"sliced ELL would store {lanes.num_slots} slots for {pattern.nnz} nonzeros")
    columns, sources = lanes.filled(pattern)
    columns[sources < 0] = _NO_COLUMN
    slice_offsets = np.zeros(widths.size + 1, np.int32)
    np.cumsum(widths * SELL_SLICE, out=slice_offsets[1:])
    return slice_offsets, columns, sources


def _blocks(pattern: Pattern, size: int) -> tuple[Int32Array, Int32Array, Int32Array]:
    try:
        layout = Bsr().build(pattern, {"block_rows": size, "block_cols": size})
    except InvalidProgram as refusal:
        raise Unsuited(refusal.message) from refusal
    assert layout.value_sources is not None
    offsets, columns = (layout.indices[name] for name in ("block_row_offsets", "block_col_indices"))
    return offsets.astype(np.int32, copy=False), columns.astype(np.int32, copy=False), layout.value_sources


def _blocked_ell(pattern: Pattern, size: int) -> tuple[Int32Array, Int32Array, Int32Array]:
    """Every block row padded to the longest; slots row-major across all blocks of a block row."""
    offsets, block_columns, sources = _blocks(pattern, size)
    lengths = np.diff(offsets)
    num_block_rows, width = lengths.size, int(lengths.max())
    num_slots = num_block_rows * width * size * size
    if num_slots > min(MAX_ELL_PADDING * pattern.nnz, MAX_NNZ):
        raise Unsuited(f"blocked ELL would store {num_slots} slots for {pattern.nnz} nonzeros")
    rows = np.repeat(np.arange(num_block_rows), lengths)
    places = np.arange(block_columns.size) - np.repeat(offsets[:-1], lengths)
    columns = np.full((num_block_rows, width), _NO_COLUMN, np.int32)
    columns[rows, places] = block_columns
    slots = np.full((num_block_rows, size, width, size), -1, np.int32)
    slots[rows, :, places, :] = sources.reshape(-1, size, size)
    return offsets, columns.reshape(-1), slots.reshape(-1)


def _lower(pattern: Pattern) -> tuple[Int32Array, Int32Array, Int32Array]:
    """CSR of what is not above the diagonal."""
    rows = pattern.row_indices()
    sources = np.flatnonzero(pattern.col_indices <= rows).astype(np.int32)
    offsets = np.zeros(pattern.num_rows + 1, np.int32)
    np.cumsum(np.bincount(rows[sources], minlength=pattern.num_rows), out=offsets[1:])
    return offsets, pattern.col_indices[sources], sources


def is_symmetric(pattern: Pattern, values: npt.NDArray[Any] | None) -> bool:
    """Whether A is its own transpose, values and all; `values`: None where they are not known."""
    if values is None or pattern.num_rows != pattern.num_cols:
        return False
    transpose, order = pattern.transposed
    return (
        np.array_equal(transpose.row_offsets, pattern.row_offsets)
        and np.array_equal(transpose.col_indices, pattern.col_indices)
        and np.array_equal(values[order], values)
    )
