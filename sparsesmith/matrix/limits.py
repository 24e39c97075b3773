"""Bounds on matrices of unknown origin, checked before memory is taken."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.errors import InvalidMatrix, LimitExceeded
from sparsesmith.matrix.pattern import MAX_NNZ


@dataclass(frozen=True)
class MatrixLimits:
    """What a matrix file may take."""

    max_file_bytes: int = 1 << 30
    max_decompressed_bytes: int = 4 << 30
    decompressed_anyway: int = 16 << 20
    """Bytes that a .mtx.gz may unpack to however small it is."""
    max_ratio: int = 100
    """Further bytes for each byte of the .mtx.gz; text of matrices shrinks to a tenth or so."""
    max_nnz: int = 200_000_000
    """After a symmetric file is expanded."""
    max_rows: int = 100_000_000
    max_cols: int = 100_000_000
    rows_anyway: int = 1 << 24
    """Rows or columns that a matrix may have however few nonzeros it has."""
    rows_a_nonzero: int = 1000
    """Further rows or columns for each nonzero: work and memory follow what was sent, not what a size line says."""


def check_limit(field: str, value: int, limit: int) -> None:
    """Raises LimitExceeded above the limit."""
    if value > limit:
        raise LimitExceeded(f"{field} is {value}: at most {limit}", field=field, value=value, limit=limit)


def check_shape(num_rows: int, num_cols: int, nnz: int, limits: MatrixLimits) -> None:
    """Raises LimitExceeded beyond the limits, InvalidMatrix for a matrix without rows, columns or nonzeros."""
    for field, value, limit in (
        ("num_rows", num_rows, limits.max_rows),
        ("num_cols", num_cols, limits.max_cols),
        ("nnz", nnz, limits.max_nnz),
    ):
        check_limit(field, value, min(limit, MAX_NNZ))
        if value < 1:
            raise InvalidMatrix(f"{field} is {value}: must be at least 1", field=field, value=value, limit=">= 1")
    check_emptiness(num_rows, num_cols, nnz, limits)


def check_emptiness(num_rows: int, num_cols: int, nnz: int, limits: MatrixLimits, prefix: str = "") -> None:
    """Raises LimitExceeded for almost nothing but empty rows or columns. `prefix` stands before the field's name."""
    limit = limits.rows_anyway + limits.rows_a_nonzero * nnz
    for field, value in ((f"{prefix}num_rows", num_rows), (f"{prefix}num_cols", num_cols)):
        if value > limit:
            raise LimitExceeded(
                f"{field} is {value}: at most {limit} with {nnz} nonzeros ({limits.rows_anyway} and "
                f"{limits.rows_a_nonzero} a nonzero); leave empty rows and columns out",
                field=field,
                value=value,
                limit=limit,
            )


def check_finite(values: npt.NDArray[np.generic], what: str, first: int) -> None:
    """Raises InvalidMatrix for NaN or infinity; entries are counted from `first`."""
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        field, value = f"{what} {int(bad[0]) + first}", values[bad[0]]
        raise InvalidMatrix(
            f"{field} has the value {value}: values must be finite", field=field, value=value, limit="finite"
        )
