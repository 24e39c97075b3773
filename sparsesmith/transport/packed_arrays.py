"""Arrays as fields of a hash in Redis: as they are (little-endian), or compressed where that makes them several times
smaller.

Indices are compressed as the differences of neighbours: those of regular matrices repeat, and a file of a few kilobytes
that stands for millions of nonzeros takes no more here than it took on its way.
"""

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]
Field = bytes | memoryview

COMPRESSED = ".z"
"""Ends the name of a field that is compressed."""
LEAST_BYTES = 4096
"""Smaller arrays are stored as they are."""
LEAST_RATIO = 4.0
"""By which an array must shrink; others would cost more time than they save memory."""
LEVEL = 1
_NUM_SAMPLES = 16
_SAMPLE_BYTES = 16 * 1024


def pack(name: str, array: AnyArray) -> tuple[str, Field]:
    """Name and content of the field that holds an array, shape [n]."""
    words = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    steps = _steps(words)
    if not _is_compressible(steps):
        return name, words.data.cast("B")
    return name + COMPRESSED, zlib.compress(steps.data.cast("B"), LEVEL)


def unpack(name: str, fields: Mapping[str, bytes], dtype: npt.DTypeLike, count: int | None = None) -> AnyArray | None:
    """The array of a field, shape [n]; None where there is none, or one that does not hold `count` entries."""
    raw = np.dtype(dtype).newbyteorder("<")
    try:
        if name in fields:
            array: AnyArray = np.frombuffer(fields[name], raw)
        elif name + COMPRESSED in fields and count is not None:
            array = _summed(np.frombuffer(_decompressed(fields[name + COMPRESSED], count * raw.itemsize), raw))
        else:
            return None
    except (ValueError, zlib.error):
        return None
    return array if count is None or array.size == count else None


def names(name: str) -> tuple[str, str]:
    """Of the fields that an array may be found in."""
    return name, name + COMPRESSED


def _steps(words: AnyArray) -> AnyArray:
    """Differences of neighbouring whole numbers, modulo 2^32; other numbers as they are."""
    return np.diff(words, prepend=words.dtype.type(0)) if words.dtype.kind == "i" else words


def _summed(steps: AnyArray) -> AnyArray:
    return np.cumsum(steps, dtype=steps.dtype) if steps.dtype.kind == "i" else steps


def _is_compressible(steps: AnyArray) -> bool:
    """Told from samples spread over the array."""
    data = steps.data.cast("B")
    if len(data) < LEAST_BYTES:
        return False
    stride = max(_SAMPLE_BYTES, len(data) // _NUM_SAMPLES)
    sample = b"".join(bytes(data[start : start + _SAMPLE_BYTES]) for start in range(0, len(data), stride))
    return len(zlib.compress(sample, LEVEL)) * LEAST_RATIO < len(sample)


def _decompressed(content: bytes, num_bytes: int) -> bytes:
    """Never more than announced. Raises ValueError for less, zlib.error for damage."""
    stream = zlib.decompressobj()
    data = stream.decompress(content, num_bytes)
    if len(data) != num_bytes or stream.decompress(stream.unconsumed_tail, 1):
        raise ValueError(f"{len(data)} bytes are no {num_bytes}")
    return data
