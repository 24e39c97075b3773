"""Patterns by digest: the generator puts, evaluators and trainer get."""

import numpy as np

from sparsesmith.domain.pattern import Int32Array, Pattern
from sparsesmith.errors import NotFound, Unavailable
from sparsesmith.transport.connection import Redis, answering

_PREFIX = "sparsesmith:pattern:"


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
        """The pattern of that digest, its life extended. Raises NotFound, Unavailable (also for a damaged entry)."""
        key = _PREFIX + digest
        with answering():
            shape, row_offsets, col_indices = self._connection.hmget(key, ["shape", "row_offsets", "col_indices"])
            self._connection.expire(key, self._ttl_s)
        if shape is None or row_offsets is None or col_indices is None:
            raise NotFound(f"no pattern {digest} is stored", field="pattern", value=digest)
        num_rows, num_cols = map(int, bytes(shape).split())
        pattern = Pattern(
            num_rows, num_cols, np.frombuffer(row_offsets, "<i4"), np.frombuffer(col_indices, "<i4")
        )
        if pattern.digest != digest:
            raise Unavailable(f"pattern {digest} is damaged in the store", field="pattern", value=digest)
        return pattern


def _words(array: Int32Array) -> memoryview:
    """The array's bytes, little-endian, without a copy."""
    return np.ascontiguousarray(array, "<i4").data.cast("B")
