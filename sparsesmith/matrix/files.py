"""Reading sparse matrices from files of unknown origin: Matrix Market (.mtx, .mtx.gz) and SciPy (.npz).

Sizes are checked against limits before memory is taken: file, decompressed bytes, rows, columns, nonzeros. Compressed
text is measured once without being kept, then parsed. Pickles are never loaded.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.errors import InvalidMatrix
from sparsesmith.matrix.limits import MatrixLimits, check_finite, check_limit
from sparsesmith.matrix.matrix_market import read_matrix_market
from sparsesmith.matrix.npz import read_npz_matrix
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy

__all__ = ["MatrixLimits", "read_matrix", "read_pattern"]

Values = npt.NDArray[np.float64]

DEFAULT_LIMITS = MatrixLimits()
_CHUNK_BYTES = 1 << 20
_GZIP_CHUNK_BYTES = 1 << 16
"""Read at a time; a chunk is copied for each member that begins in it."""
_MEMBERS_ANYWAY = 64
_LEAST_MEMBER_BYTES = 256
"""On average. Writers of blocks (bgzip, pigz) make members of thousands of bytes."""


def read_matrix(
    data: bytes | Path, filename: str, limits: MatrixLimits = DEFAULT_LIMITS
) -> tuple[Pattern, Values | None]:
    """Pattern and values (CSR order, shape [nnz]) of a file, given as bytes or path; `filename` tells its kind.

    Values are None where the file has none that are real (`pattern`, `complex`, boolean). Stored zeros count as
    nonzeros; duplicates are added up. Raises InvalidMatrix for a file that is not a sparse matrix, LimitExceeded for
    one that is too large.
    """
    matrix, has_values = _read(data, filename, limits, keeps_values=True)
    csr = matrix.tocsr()
    del matrix
    csr.sum_duplicates()
    pattern = pattern_from_scipy(csr)
    if not has_values:
        return pattern, None
    values = csr.data.astype(np.float64, copy=False)
    check_finite(values, "sum of duplicates at nonzero", first=0)
    return pattern, values


def read_pattern(data: bytes | Path, filename: str, limits: MatrixLimits = DEFAULT_LIMITS) -> Pattern:
    """The pattern alone, in less memory; like `read_matrix` in all else, but for duplicates whose sum is not finite."""
    matrix, _ = _read(data, filename, limits, keeps_values=False)
    return pattern_from_scipy(matrix, copy=False)


def _read(
    data: bytes | Path, filename: str, limits: MatrixLimits, *, keeps_values: bool
) -> "tuple[scipy.sparse.spmatrix, bool]":
    file = _File(data)
    check_limit("file size in bytes", file.num_bytes, limits.max_file_bytes)
    name = filename.lower()
    if name.endswith(".mtx"):
        return read_matrix_market(file.open, file.num_bytes, limits, keeps_values=keeps_values)
    if name.endswith(".mtx.gz"):
        num_bytes = _decompressed_bytes(file, limits)
        return read_matrix_market(file.open_gzip, num_bytes, limits, keeps_values=keeps_values)
    if name.endswith(".npz"):
        with file.open() as stream:
            return read_npz_matrix(stream, limits, keeps_values=keeps_values)
    raise InvalidMatrix(
        f"file {filename!r}: expected .mtx, .mtx.gz or .npz", field="file", value=filename, limit=".mtx, .mtx.gz, .npz"
    )


@dataclass(frozen=True)
class _File:
    data: bytes | Path

    @property
    def num_bytes(self) -> int:
        return self.data.stat().st_size if isinstance(self.data, Path) else len(self.data)

    def open(self) -> IO[bytes]:
        return self.data.open("rb") if isinstance(self.data, Path) else io.BytesIO(self.data)

    def open_gzip(self) -> IO[bytes]:
        return gzip.open(self.data if isinstance(self.data, Path) else io.BytesIO(self.data), "rb")  # type: ignore[return-value]


def _decompressed_bytes(file: _File, limits: MatrixLimits) -> int:
    """Measured in little memory. Raises LimitExceeded for more than files of text grow, or more members than writers of
    blocks make; InvalidMatrix for damage."""
    most_bytes = min(limits.max_decompressed_bytes, limits.decompressed_anyway + limits.max_ratio * file.num_bytes)
    most_members = _MEMBERS_ANYWAY + file.num_bytes // _LEAST_MEMBER_BYTES
    num_bytes, num_members = 0, 0
    try:
        with file.open() as stream:
            for is_new, piece in _inflated(stream):
                num_bytes += len(piece)
                num_members += is_new
                check_limit("decompressed size in bytes", num_bytes, most_bytes)
                check_limit("members of the gzip file", num_members, most_members)
    except (EOFError, zlib.error) as error:
        raise InvalidMatrix(f"file: damaged gzip data: {error}", field="file") from error
    return num_bytes


def _inflated(stream: IO[bytes]) -> Iterator[tuple[bool, bytes]]:
    """Decompressed pieces of all members, and whether a piece begins a new one. Raises zlib.error, EOFError."""
    member = None
    while chunk := stream.read(_GZIP_CHUNK_BYTES):
        while chunk:
            is_new = member is None
            if member is None:
                chunk = chunk.lstrip(b"\0")  # Members may be padded with zeros.
                if not chunk:
                    break
                member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            yield is_new, member.decompress(chunk, _CHUNK_BYTES)
            chunk = member.unused_data if member.eof else member.unconsumed_tail
            if member.eof:
                member = None
    if member is not None:
        raise EOFError("it ends too early")
