"""Patterns, and values where a request fixes them, by digest: the generator puts, evaluators and trainer get."""

from collections.abc import Sequence

import numpy as np

from sparsesmith.errors import NotFound, Unavailable
from sparsesmith.matrix.pattern import Int32Array, Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith.transport.connection import Redis, answering

_PREFIX = "sparsesmith:pattern:"
_VALUES_PREFIX = "sparsesmith:values:"


class PatternStore:
    """Each pattern is stored once, as a hash of its little-endian index arrays; unused ones expire."""

    def __init__(self, connection: Redis, ttl_s: int = 7 * 24 * 3600) -> None:
        self._connection = connection
        self._ttl_s = ttl_s

    def put(self, pattern: Pattern) -> str:
        """Store (or keep) the pattern and return its digest. Raises Unavailable."""
        key = _PREFIX + pattern.digest
        with answering():
            if not self._connection.expire(key, self._ttl_s):
                fields = {
                    "shape": f"{pattern.num_rows} {pattern.num_cols}",
                    "row_offsets": _words(pattern.row_offsets),
                    "col_indices": _words(pattern.col_indices),
                }
                with self._connection.pipeline(transaction=True) as pipeline:
                    pipeline.hset(key, mapping=fields)
                    pipeline.expire(key, self._ttl_s)
                    pipeline.execute()
        return pattern.digest

    def get(self, digest: str) -> Pattern:
        """The pattern of that digest, its life extended.

        Raises NotFound, Unavailable; also for a damaged entry, which is dropped, so that it can be put again.
        """
        key = _PREFIX + digest
        with answering():
            fields = self._connection.hmget(key, ["shape", "row_offsets", "col_indices"])
            if not self._connection.expire(key, self._ttl_s):
                raise NotFound(f"no pattern {digest} is stored", field="pattern", value=digest)
            pattern = _parse(fields)
            if pattern is None or pattern.digest != digest:
                self._connection.delete(key)
                raise Unavailable(f"pattern {digest} was damaged in the store", field="pattern", value=digest)
        return pattern

    def put_values(self, values: FixedValues) -> str:
        """Store (or keep) values of a matrix and return their digest. Raises Unavailable."""
        key = _VALUES_PREFIX + values.digest
        with answering():
            if not self._connection.expire(key, self._ttl_s):
                little_endian = np.ascontiguousarray(values.array, values.array.dtype.newbyteorder("<"))
                fields = {"element_type": values.array.dtype.name, "values": little_endian.data.cast("B")}
                with self._connection.pipeline(transaction=True) as pipeline:
                    pipeline.hset(key, mapping=fields)
                    pipeline.expire(key, self._ttl_s)
                    pipeline.execute()
        return values.digest

    def get_values(self, digest: str) -> FixedValues:
        """The values of that digest, their life extended.

        Raises NotFound, Unavailable; also for a damaged entry, which is dropped, so that it can be put again.
        """
        key = _VALUES_PREFIX + digest
        with answering():
            fields = self._connection.hmget(key, ["element_type", "values"])
            if not self._connection.expire(key, self._ttl_s):
                raise NotFound(f"no values {digest} are stored", field="values", value=digest)
            values = _parse_values(*fields)
            if values is None or values.digest != digest:
                self._connection.delete(key)
                raise Unavailable(f"values {digest} were damaged in the store", field="values", value=digest)
        return values


def _parse_values(element_type: bytes | None, words: bytes | None) -> FixedValues | None:
    """None where the fields are no values at all."""
    if element_type not in (b"float32", b"float64") or words is None:
        return None
    dtype = np.dtype(element_type.decode())
    try:
        return FixedValues(np.frombuffer(words, dtype.newbyteorder("<")).astype(dtype, copy=False))
    except ValueError:
        return None


def _parse(fields: Sequence[bytes | None]) -> Pattern | None:
    """None where the fields are no pattern at all."""
    shape, row_offsets, col_indices = fields
    if shape is None or row_offsets is None or col_indices is None:
        return None
    try:
        num_rows, num_cols = map(int, shape.split())
        return Pattern(num_rows, num_cols, np.frombuffer(row_offsets, "<i4"), np.frombuffer(col_indices, "<i4"))
    except ValueError:
        return None


def _words(array: Int32Array) -> memoryview:
    """The array's bytes, little-endian, without a copy."""
    return np.ascontiguousarray(array, "<i4").data.cast("B")
