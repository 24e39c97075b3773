"""A sparsity pattern: where the nonzeros are. Values do not choose the kernel."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.errors import InvalidMatrix, LimitExceeded

Int32Array = npt.NDArray[np.int32]
IndexArray = npt.NDArray[np.int32] | npt.NDArray[np.int64]

MAX_NNZ = 2**31 - 1
"""Offsets on the device are 32-bit."""
AT_A_TIME = 1 << 16
"""Nonzeros or rows: so many that temporary arrays stay in a core's cache."""
FEW = 8
"""One row of so many: what is asked of fewer is not computed of all."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Canonical CSR: rows in order, columns ascending within a row, no duplicates."""

    num_rows: int
    num_cols: int
    row_offsets: Int32Array
    """Shape [num_rows + 1]."""
    col_indices: Int32Array
    """Shape [nnz]."""

    @property
    def nnz(self) -> int:
        return int(self.col_indices.size)

    @property
    def num_bytes(self) -> int:
        """Host memory of the index arrays."""
        return int(self.row_offsets.nbytes + self.col_indices.nbytes)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over shape and index arrays (little-endian), in hexadecimal."""
        sha = hashlib.sha256(f"sparsesmith-pattern-1 {self.num_rows} {self.num_cols} {self.nnz}\n".encode())
        sha.update(np.ascontiguousarray(self.row_offsets, dtype="<i4").data)
        sha.update(np.ascontiguousarray(self.col_indices, dtype="<i4").data)
        return sha.hexdigest()

    @cached_property
    def row_lengths(self) -> Int32Array:
        """Nonzeros of each row, shape [num_rows]."""
        return np.diff(self.row_offsets)

    def row_indices(self) -> Int32Array:
        """Row of each nonzero, shape [nnz]."""
        rows = np.empty(self.nnz, np.int32)
        for piece in pieces(self.nnz):
            rows[piece] = self.rows_of_run(piece.start, piece.stop)
        return rows

    def rows_of(self, nonzeros: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Row of each of some nonzeros, given by their places 0..nnz in CSR order; of nnz itself, num_rows.

        Places are searched for as what offsets are: of two types, NumPy would convert all offsets for a few places.
        """
        found = np.searchsorted(self.row_offsets, nonzeros.astype(np.int32, copy=False), side="right")
        return found.astype(np.int64, copy=False) - 1

    def rows_of_run(self, begin: int, end: int) -> Int32Array:
        """Row of each nonzero from place `begin` up to `end`, which come in CSR order: a few times faster than
        `rows_of`."""
        if begin >= end:
            return np.empty(0, np.int32)
        return next(self.rows_of_runs(np.array([begin]), end - begin))

    def rows_of_runs(self, begins: npt.NDArray[np.integer], count: int) -> Iterator[Int32Array]:
        """As `rows_of_run`, of runs of so many nonzeros, at least one, from each of some places."""
        bounds = self.rows_of(begins).tolist(), self.rows_of(begins + (count - 1)).tolist()
        for begin, first, last in zip(begins.tolist(), *bounds, strict=True):
            places = np.arange(first, last + 1, dtype=np.int32)
            if first == last:
                yield np.repeat(places, count)
                continue
            held = np.diff(self.row_offsets[first : last + 2])
            held[0] = self.row_offsets[first + 1] - begin
            held[-1] = begin + count - self.row_offsets[last]
            yield np.repeat(places, held)

    @cached_property
    def row_spans(self) -> tuple[Int32Array, Int32Array]:
        """First and last column of each row; an empty row gives the largest integer and -1."""
        return self._spans(self.row_offsets[:-1], self.row_offsets[1:])

    def spans_of(self, rows: npt.NDArray[np.intp]) -> tuple[Int32Array, Int32Array]:
        """`row_spans` of some rows, ascending; of few, without those of all."""
        if "row_spans" not in self.__dict__ and rows.size < self.num_rows // FEW:
            return self._spans(self.row_offsets.take(rows), self.row_offsets.take(rows + 1))
        first, last = self.row_spans
        return first.take(rows), last.take(rows)

    def _spans(self, begins: Int32Array, ends: Int32Array) -> tuple[Int32Array, Int32Array]:
        """Of runs of nonzeros, each within a row."""
        first, last = np.empty(begins.size, np.int32), np.empty(begins.size, np.int32)
        for runs in pieces(begins.size):
            self.col_indices.take(begins[runs], out=first[runs], mode="clip")
            self.col_indices.take(ends[runs] - 1, out=last[runs], mode="clip")
            empty = begins[runs] == ends[runs]
            if empty.any():
                first[runs][empty], last[runs][empty] = np.iinfo(np.int32).max, -1
        return first, last

    def __getstate__(self) -> dict[str, object]:
        """Without what is computed sooner than sent; another thread may compute something meanwhile."""
        held = self.__dict__.copy()
        return {name: value for name, value in held.items() if name not in ("row_lengths", "row_spans")}

    @cached_property
    def transposed(self) -> "tuple[Pattern, npt.NDArray[np.int64]]":
        """That of A^T, columns ascending, and for each of its nonzeros the place of its value among those of A. Kept,
        and takes three times the memory of this pattern."""
        order = np.argsort(self.col_indices, kind="stable")
        offsets = np.zeros(self.num_cols + 1, np.int32)
        np.cumsum(np.bincount(self.col_indices, minlength=self.num_cols), out=offsets[1:])
        return Pattern(self.num_cols, self.num_rows, offsets, self.row_indices()[order]), order

    def to_scipy(self, values: npt.NDArray[np.floating]) -> scipy.sparse.csr_matrix:
        """The matrix with these values, shape [nnz], in the pattern's order."""
        return scipy.sparse.csr_matrix(
            (values, self.col_indices, self.row_offsets), shape=(self.num_rows, self.num_cols), copy=False
        )


def pieces(count: int) -> Iterator[slice]:
    """Of so many nonzeros or rows AT_A_TIME each."""
    for start in range(0, count, AT_A_TIME):
        yield slice(start, min(start + AT_A_TIME, count))


def pattern_from_scipy(matrix: "scipy.sparse.spmatrix | scipy.sparse.sparray", *, copy: bool = True) -> Pattern:
    """The pattern of a SciPy sparse matrix. Explicit zeros count as nonzeros; duplicates are merged.

    With `copy=False` the pattern may sort the matrix's index arrays and share them: nobody may change them any more.
    Raises InvalidMatrix for an empty matrix or one whose indices contradict its shape, LimitExceeded beyond 32 bits.
    """
    if len(matrix.shape) != 2:
        raise InvalidMatrix(
            f"shape has {len(matrix.shape)} dimensions: must be 2", field="shape", value=len(matrix.shape), limit=2
        )
    num_rows, num_cols = (int(extent) for extent in matrix.shape)
    _check_size(num_rows, num_cols, int(matrix.nnz))
    csr = _checked_csr(matrix)
    if csr is not matrix:
        copy = False
    offsets, columns = csr.indptr, csr.indices
    if not _is_canonical(offsets, columns):
        # An explicit zero must survive the merge, and two values must not cancel: the values are not looked at.
        csr = scipy.sparse.csr_matrix((np.ones(columns.size, np.int8), columns, offsets), shape=csr.shape, copy=copy)
        csr.sum_duplicates()
        offsets, columns, copy = csr.indptr, csr.indices, False
    return Pattern(num_rows, num_cols, offsets.astype(np.int32, copy=copy), columns.astype(np.int32, copy=copy))


def _checked_csr(matrix: "scipy.sparse.spmatrix | scipy.sparse.sparray") -> scipy.sparse.csr_matrix:
    """As CSR, indices checked first: SciPy's conversions write out of bounds for indices outside the shape."""
    try:
        if matrix.format == "coo":
            for index, extent in ((matrix.row, matrix.shape[0]), (matrix.col, matrix.shape[1])):
                if index.min() < 0 or index.max() >= extent:
                    raise ValueError(f"an index lies outside 0..{extent - 1}")
        if matrix.format in ("csr", "csc", "bsr"):
            matrix.check_format(full_check=True)
    except ValueError as error:
        raise InvalidMatrix(f"not a sparse matrix: {error}", field="indices") from error
    return matrix.tocsr()


def _is_canonical(row_offsets: IndexArray, col_indices: IndexArray) -> bool:
    """Whether columns ascend strictly within each row. SciPy's own flag is kept by callers and may be stale."""
    ascends = np.empty(col_indices.size + 1, np.bool_)
    np.less(col_indices[:-1], col_indices[1:], out=ascends[1:-1])
    ascends[row_offsets] = True
    return bool(ascends.all())


def pattern_from_indices(num_rows: int, num_cols: int, rows: npt.ArrayLike, cols: npt.ArrayLike) -> Pattern:
    """The pattern of two zero-based index lists of equal length, in any order. Duplicates are merged.

    Raises InvalidMatrix for unequal lengths, indices that are not whole numbers or lie outside the shape, no indices;
    LimitExceeded beyond 32-bit offsets.
    """
    row_array = _whole_numbers(rows, "row_indices", num_rows)
    col_array = _whole_numbers(cols, "col_indices", num_cols)
    if row_array.size != col_array.size:
        raise InvalidMatrix(
            f"row_indices has {row_array.size} entries, col_indices has {col_array.size}: they must be equal",
            field="col_indices",
            value=col_array.size,
            limit=row_array.size,
        )
    _check_size(num_rows, num_cols, row_array.size)
    ones = np.ones(row_array.size, np.int8)
    csr = scipy.sparse.coo_matrix((ones, (row_array, col_array)), shape=(num_rows, num_cols)).tocsr()
    return Pattern(
        num_rows, num_cols, csr.indptr.astype(np.int32, copy=False), csr.indices.astype(np.int32, copy=False)
    )


def _whole_numbers(indices: npt.ArrayLike, field: str, extent: int) -> IndexArray:
    """32-bit where the extent allows it; no copy where they are."""
    array = np.asarray(indices)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidMatrix(f"{field}: expected a list of whole numbers, got {array.dtype} of {array.ndim} dimensions",
                            field=field, value=str(array.dtype), limit="whole numbers")  # fmt: skip
    if array.size and (array.min() < 0 or array.max() >= extent):
        first = int(np.flatnonzero((array < 0) | (array >= extent))[0])
        raise InvalidMatrix(
            f"{field}[{first}] is {array[first]}: must be from 0 to {extent - 1}",
            field=f"{field}[{first}]",
            value=array[first],
            limit=f"0..{extent - 1}",
        )
    return array.astype(np.int32, copy=False) if extent <= MAX_NNZ else array.astype(np.int64, copy=False)


def _check_size(num_rows: int, num_cols: int, nnz: int) -> None:
    for field, extent in (("num_rows", num_rows), ("num_cols", num_cols)):
        if extent < 1:
            raise InvalidMatrix(f"{field} is {extent}: must be at least 1", field=field, value=extent, limit=">= 1")
        if extent > MAX_NNZ:
            raise LimitExceeded(f"{field} is {extent}: at most {MAX_NNZ}", field=field, value=extent, limit=MAX_NNZ)
    if nnz < 1:
        raise InvalidMatrix(
            "the matrix has no nonzeros: there is no kernel to tune", field="nnz", value=0, limit=">= 1"
        )
    if nnz > MAX_NNZ:
        raise LimitExceeded(f"nnz is {nnz}: at most {MAX_NNZ}", field="nnz", value=nnz, limit=MAX_NNZ)
