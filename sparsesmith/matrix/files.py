"""Reading sparse matrices from files of unknown origin: Matrix Market (.mtx, .mtx.gz) and SciPy (.npz).

Sizes are checked against limits before memory is taken: file, decompressed bytes, rows, columns, nonzeros. Compressed
text is measured once without being kept, then parsed. Pickles are never loaded.
"""

import gzip
import io
import zlib
from collections.abc import Callable
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
        num_bytes = _decompressed_bytes(file.open_gzip, limits)
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


def _decompressed_bytes(open_stream: Callable[[], IO[bytes]], limits: MatrixLimits) -> int:
    total = 0
    try:
        with open_stream() as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                total += len(chunk)
                check_limit("decompressed size in bytes", total, limits.max_decompressed_bytes)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidMatrix(f"file: damaged gzip data: {error}", field="file") from error
    return total
