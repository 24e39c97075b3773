"""Facts of a pattern that explain a time: how long its rows are, how scattered its reads of the dense operand."""

from dataclasses import dataclass

import numpy as np

from sparsesmith.matrix.pattern import Pattern

WARP_LANES = 32
SECTOR_BYTES = 32


@dataclass(frozen=True)
class Structure:
    """What the report's causes are derived from."""

    longest_row: int
    empty_rows: int
    used_cols: int
    """Columns with a nonzero: the entries of x that must be read."""
    x_sectors_per_nnz: float
    """32-byte sectors of x that 32 consecutive nonzeros of a row-major walk touch, a nonzero: 1 where each lane reads
    a sector of its own, 1/8 (float32) where neighbours read neighbours."""


def structure_of(pattern: Pattern, element_bytes: int) -> Structure:
    """Of a pattern with values of this size; one sort of the columns in groups of a warp."""
    lengths = pattern.row_lengths
    return Structure(
        longest_row=int(lengths.max(initial=0)),
        empty_rows=int(np.count_nonzero(lengths == 0)),
        used_cols=int(np.count_nonzero(np.bincount(pattern.col_indices, minlength=pattern.num_cols))),
        x_sectors_per_nnz=x_sectors_per_nnz(pattern, element_bytes),
    )


def x_sectors_per_nnz(pattern: Pattern, element_bytes: int) -> float:
    """See Structure; a last group that is not full does not count unless it is the only one."""
    sectors = pattern.col_indices // (SECTOR_BYTES // element_bytes)
    if sectors.size < WARP_LANES:
        return np.unique(sectors).size / max(1, sectors.size)
    groups = np.sort(sectors[: sectors.size // WARP_LANES * WARP_LANES].reshape(-1, WARP_LANES), axis=1)
    distinct = groups.shape[0] + np.count_nonzero(groups[:, 1:] != groups[:, :-1])
    return float(distinct / groups.size)


def vector_bytes(pattern: Pattern, structure: Structure, element_bytes: int, num_dense_cols: int) -> int:
    """The entries of x (or B) that some column uses, once, and y (or C), once."""
    return element_bytes * num_dense_cols * (structure.used_cols + pattern.num_rows)
