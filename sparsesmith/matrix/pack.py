"""Many patterns in one compact file, for machines that take little luggage.

Columns are stored as gaps within a row and as the move from the row before, byte planes apart, compressed with xz;
of a structurally symmetric pattern the lower triangle alone. `read_pack` gives back equal patterns.
"""

import json
import lzma
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.matrix.pattern import Int32Array, Pattern, pattern_from_scipy

MAGIC = b"SPPACK01"
_XZ = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 26, "lc": 3, "lp": 0, "pb": 0}]


def encode_pattern(pattern: Pattern) -> bytes:
    """A pattern as bytes: shape and symmetry, compressed row lengths and column moves."""
    symmetric = _is_symmetric(pattern)
    stored = _lower(pattern) if symmetric else pattern
    body = _planes(stored.row_lengths) + _planes(_moves(stored))
    packed = lzma.compress(body, format=lzma.FORMAT_RAW, filters=_XZ)
    return struct.pack("<iii?", pattern.num_rows, pattern.num_cols, stored.nnz, symmetric) + packed


def decode_pattern(data: bytes) -> Pattern:
    """The inverse of `encode_pattern`."""
    num_rows, num_cols, nnz, symmetric = struct.unpack_from("<iii?", data)
    body = lzma.decompress(data[struct.calcsize("<iii?") :], format=lzma.FORMAT_RAW, filters=_XZ)
    lengths, moves = _from_planes(body[: 4 * num_rows]), _from_planes(body[4 * num_rows :])
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)
    stored = Pattern(num_rows, num_cols, offsets, _columns(offsets, moves, nnz))
    return _mirrored(stored) if symmetric else stored


def write_pack(path: Path, patterns: Mapping[str, bytes]) -> None:
    """Encoded patterns by name, behind an index of their sizes."""
    index = json.dumps({name: len(data) for name, data in patterns.items()}).encode()
    with path.open("wb") as out:
        out.write(MAGIC + struct.pack("<i", len(index)) + index)
        out.writelines(patterns.values())


def pack_index(path: Path) -> dict[str, int]:
    """Bytes of each pattern of a pack, by name, in file order. Raises ValueError for another kind of file."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError(f"{path} is not a pack of patterns")
        (length,) = struct.unpack("<i", file.read(4))
        index: dict[str, int] = json.loads(file.read(length))
    return index


def read_pack(path: Path, names: Iterable[str] | None = None) -> Iterator[tuple[str, Pattern]]:
    """Patterns with their names, in file order; all, or those asked for."""
    index = pack_index(path)
    wanted = set(index if names is None else names)
    position = path.stat().st_size - sum(index.values())
    with path.open("rb") as file:
        for name, length in index.items():
            if name in wanted:
                file.seek(position)
                yield name, decode_pattern(file.read(length))
            position += length


def _moves(pattern: Pattern) -> Int32Array:
    """Gap to the row's previous nonzero less one; for a row's first nonzero the move from the previous filled row's
    first one, signs folded in. Shape [nnz]."""
    cols = pattern.col_indices.astype(np.int64)
    gaps = np.diff(cols, prepend=0) - 1
    firsts = pattern.row_offsets[:-1][pattern.row_lengths > 0]
    moves = np.diff(cols[firsts], prepend=0)
    gaps[firsts] = np.where(moves < 0, -2 * moves - 1, 2 * moves)
    return gaps.astype(np.uint32).view(np.int32)


def _columns(offsets: Int32Array, moves: Int32Array, nnz: int) -> Int32Array:
    gaps = moves.view(np.uint32).astype(np.int64)
    firsts = offsets[:-1][np.diff(offsets) > 0]
    folded = gaps[firsts]
    starts = np.cumsum(np.where(folded % 2 == 1, -(folded + 1) // 2, folded // 2))
    steps = gaps + 1
    steps[firsts] = 0
    walked = np.cumsum(steps)
    lengths = np.diff(np.append(firsts, nnz))
    return (walked + np.repeat(starts - walked[firsts], lengths)).astype(np.int32)


def _planes(array: npt.NDArray[np.int32]) -> bytes:
    """The lowest bytes of all numbers, then the next, ...: like stands beside like."""
    return np.ascontiguousarray(array.astype("<i4")).view(np.uint8).reshape(-1, 4).T.tobytes()


def _from_planes(data: bytes) -> Int32Array:
    planes = np.frombuffer(data, np.uint8).reshape(4, -1)
    return np.ascontiguousarray(planes.T).view("<i4").reshape(-1).astype(np.int32)


def _ones(pattern: Pattern) -> scipy.sparse.csr_matrix:
    return pattern.to_scipy(np.ones(pattern.nnz, np.float32))


def _is_symmetric(pattern: Pattern) -> bool:
    if pattern.num_rows != pattern.num_cols:
        return False
    turned = pattern_from_scipy(_ones(pattern).T)
    return bool(
        np.array_equal(turned.row_offsets, pattern.row_offsets)
        and np.array_equal(turned.col_indices, pattern.col_indices)
    )


def _lower(pattern: Pattern) -> Pattern:
    lower = scipy.sparse.tril(_ones(pattern), format="csr")
    return Pattern(pattern.num_rows, pattern.num_cols, lower.indptr.astype(np.int32), lower.indices.astype(np.int32))


def _mirrored(lower: Pattern) -> Pattern:
    half = _ones(lower)
    return pattern_from_scipy(half + half.T)
