"""How scattered the reads of x are."""

import numpy as np

from sparsesmith.matrix.features import sample_windows
from sparsesmith.matrix.pattern import Pattern

SECTOR_BYTES = 32
SCATTERED = 0.4
"""Sectors of x a nonzero, from which on the gather of x rather than the matrix is what takes the time."""


def sectors_a_nonzero(pattern: Pattern, element_bytes: int) -> float:
    """Sectors of x that a run of a few thousand nonzeros touches, for each nonzero of the run; from a sample."""
    columns = sample_windows(pattern).cols // (SECTOR_BYTES // element_bytes)
    ordered = np.sort(columns, axis=1)
    return float((np.diff(ordered, axis=1) != 0).sum() + ordered.shape[0]) / ordered.size
