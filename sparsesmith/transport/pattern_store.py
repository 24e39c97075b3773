"""Patterns, and values where a request fixes them, by digest: the generator puts, evaluators and trainer get.

What is stored follows what was sent, not the shape: where rows are mostly empty, the rows of the nonzeros are kept
instead of an offset for every row, and arrays that repeat are compressed. Entries of earlier releases (`row_offsets`
and `col_indices` as they are) are read.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from sparsesmith.elements import ELEMENTS, dtype_of
from sparsesmith.errors import NotFound, Unavailable
from sparsesmith.matrix.pattern import Int32Array, Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith.transport.connection import Redis, answering
from sparsesmith.transport.packed_arrays import Field, names, pack, unpack
from sparsesmith.transport.shelf import Shelf, ShelfLimits
from sparsesmith_proto.kernel import Workload

_PREFIX = "sparsesmith:pattern:"
_VALUES_PREFIX = "sparsesmith:values:"
UNNAMED = "unnamed"
"""A user who gives nothing back."""


class PatternStore:
    """Each pattern is stored once; see `shelf` for how long."""

    def __init__(self, connection: Redis, limits: ShelfLimits | None = None) -> None:
        self._connection = connection
        self._shelf = Shelf(connection, limits or ShelfLimits())

    def put(self, pattern: Pattern, user: str = UNNAMED) -> str:
        """Store (or keep) the pattern for a user and return its digest. Raises Unavailable, also where it is full."""
        key = _PREFIX + pattern.digest
        if not self._shelf.use(key, user):
            self._shelf.put(key, _pattern_fields(pattern), user)
        return pattern.digest

    def get(self, digest: str) -> Pattern:
        """The pattern of that digest, its life extended.

        Raises NotFound, Unavailable; also for a damaged entry, which is dropped, so that it can be put again.
        """
        key = _PREFIX + digest
        fields = self._fields(key, _PATTERN_FIELDS)
        if not self._shelf.use(key):
            raise NotFound(f"no pattern {digest} is stored", field="pattern", value=digest)
        pattern = _parse(fields)
        if pattern is None or pattern.digest != digest:
            self._shelf.drop(key)
            raise Unavailable(f"pattern {digest} was damaged in the store", field="pattern", value=digest)
        return pattern

    def put_values(self, values: FixedValues, user: str = UNNAMED) -> str:
        """Store (or keep) values of a matrix for a user and return their digest. Raises as `put` does."""
        key = _VALUES_PREFIX + values.digest
        if not self._shelf.use(key, user):
            array = values.array
            packed = dict([pack("values", values.bits)])
            self._shelf.put(key, {"element_type": array.dtype.name, "count": str(array.size), **packed}, user)
        return values.digest

    def get_values(self, digest: str) -> FixedValues:
        """The values of that digest, their life extended.

        Raises NotFound, Unavailable; also for a damaged entry, which is dropped, so that it can be put again.
        """
        key = _VALUES_PREFIX + digest
        fields = self._fields(key, _VALUES_FIELDS)
        if not self._shelf.use(key):
            raise NotFound(f"no values {digest} are stored", field="values", value=digest)
        values = _parse_values(fields)
        if values is None or values.digest != digest:
            self._shelf.drop(key)
            raise Unavailable(f"values {digest} were damaged in the store", field="values", value=digest)
        return values

    def hold(self, workload: Workload, user: str) -> None:
        """A user of what is stored already, if it is. Raises Unavailable."""
        for key in _keys(workload):
            self._shelf.use(key, user)

    def release(self, workload: Workload, user: str) -> None:
        """The user needs the matrix no longer: it goes, unless another does. Raises Unavailable."""
        for key in _keys(workload):
            self._shelf.release(key, user)

    def num_bytes(self) -> int:
        """Of all that is stored. Raises Unavailable."""
        return self._shelf.num_bytes()

    def _fields(self, key: str, wanted: Iterable[str]) -> dict[str, bytes]:
        with answering():
            found = self._connection.hmget(key, list(wanted))
        return {name: content for name, content in zip(wanted, found, strict=True) if content is not None}


_PATTERN_FIELDS = ("shape", "nnz", *names("row_offsets"), *names("row_indices"), *names("col_indices"))
_VALUES_FIELDS = ("element_type", "count", *names("values"))


def _keys(workload: Workload) -> tuple[str, ...]:
    values = () if workload.values is None else (_VALUES_PREFIX + workload.values,)
    return (_PREFIX + workload.pattern, *values)


def _pattern_fields(pattern: Pattern) -> dict[str, Field | str]:
    is_sparse_in_rows = pattern.num_rows >= pattern.nnz
    rows = ("row_indices", _row_indices(pattern)) if is_sparse_in_rows else ("row_offsets", pattern.row_offsets)
    shape = {"shape": f"{pattern.num_rows} {pattern.num_cols}", "nnz": str(pattern.nnz)}
    return {**shape, **dict([pack(*rows), pack("col_indices", pattern.col_indices)])}


def _row_indices(pattern: Pattern) -> Int32Array:
    """Row of each nonzero, shape [nnz]; in memory for the rows that have some."""
    filled = np.flatnonzero(pattern.row_lengths)
    return np.repeat(filled.astype(np.int32), pattern.row_lengths[filled])


def _row_offsets(num_rows: int, row_indices: Int32Array) -> Int32Array:
    """Of the rows of the nonzeros, which ascend: shape [num_rows + 1]. Raises IndexError for a row that is none."""
    filled, counts = np.unique(row_indices, return_counts=True)
    if filled.size and filled[0] < 0:
        raise IndexError(int(filled[0]))
    offsets = np.zeros(num_rows + 1, np.int32)
    offsets[filled.astype(np.int64) + 1] = counts
    return np.cumsum(offsets, dtype=np.int32, out=offsets)


def _parse(fields: Mapping[str, bytes]) -> Pattern | None:
    """None where the fields are no pattern at all."""
    try:
        num_rows, num_cols = map(int, fields["shape"].split())
        nnz = int(fields["nnz"]) if "nnz" in fields else None  # Earlier releases did not say.
        columns = unpack("col_indices", fields, np.int32, nnz)
        offsets = unpack("row_offsets", fields, np.int32, None if nnz is None else num_rows + 1)
        rows = unpack("row_indices", fields, np.int32, nnz)
        if offsets is None and rows is not None:
            offsets = _row_offsets(num_rows, rows)
        return None if offsets is None or columns is None else Pattern(num_rows, num_cols, offsets, columns)
    except (ValueError, KeyError, IndexError):
        return None


def _parse_values(fields: Mapping[str, bytes]) -> FixedValues | None:
    """None where the fields are no values at all."""
    stored = fields.get("element_type", b"").decode(errors="replace")
    element_type = next((name for name in ELEMENTS if name == stored), None)
    if element_type is None:
        return None
    dtype = dtype_of(element_type)
    word = np.dtype(f"u{dtype.itemsize}")
    try:
        bits = unpack("values", fields, word, int(fields["count"]) if "count" in fields else None)
    except ValueError:
        return None
    return None if bits is None else FixedValues(bits.astype(word, copy=False).view(dtype))
