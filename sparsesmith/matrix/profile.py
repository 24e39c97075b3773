"""What the encoder `profiled` sees of a pattern beside its structural features: two curves.

How long rows are, cumulatively: which share of the rows, and of the nonzeros, lies in rows of at most so many nonzeros.
That is what bins of rows, padding and splits are cut from. How often columns come again, within runs of nonzeros as
warps and blocks take them and over all: that is what caches and staging of x or B live on.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from sparsesmith.matrix.features import SECTOR_BYTES, sample_windows
from sparsesmith.matrix.pattern import Int32Array, Pattern

CURVE_LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 4096)
RUN_NNZ = (64, 256, 1024, 4096)
"""Lengths of the runs of nonzeros in which columns are counted."""
COLUMN_USES = (2, 4, 16, 64, 256)
MOST_COUNTED = 4_000_000
"""Nonzeros whose columns are counted over all."""

CURVE_NAMES = (
    *(f"rows_up_to_{length}" for length in CURVE_LENGTHS),
    *(f"nonzeros_in_rows_up_to_{length}" for length in CURVE_LENGTHS),
)
REUSE_NAMES = (
    *(f"log_column_reuse_in_{nnz}" for nnz in RUN_NNZ),
    *(f"log_sector_reuse_in_{nnz}" for nnz in RUN_NNZ),
    *(f"nonzeros_in_columns_of_{uses}" for uses in COLUMN_USES),
    "log_column_mean",
)
PROFILE_NAMES: tuple[str, ...] = (*CURVE_NAMES, *REUSE_NAMES)
"""In the order of `profile_features`."""


def profile_features(pattern: Pattern) -> npt.NDArray[np.float32]:
    """In the order of PROFILE_NAMES, shape [len(PROFILE_NAMES)], scaled to about 0 to 2."""
    return np.array([*_curve(pattern), *_reuse(pattern)], np.float32)


def _curve(pattern: Pattern) -> Iterator[float]:
    """Shares of rows, then of nonzeros."""
    counts = np.bincount(np.minimum(pattern.row_lengths, CURVE_LENGTHS[-1] + 1), minlength=CURVE_LENGTHS[-1] + 2)
    rows = counts.cumsum()[list(CURVE_LENGTHS)]
    nonzeros = (counts * np.arange(counts.size)).cumsum()[list(CURVE_LENGTHS)]
    yield from (rows / pattern.num_rows).tolist()
    yield from (nonzeros / pattern.nnz).tolist()


def _reuse(pattern: Pattern) -> Iterator[float]:
    columns = sample_windows(pattern).cols
    yield from (_times_used(columns, nnz) for nnz in RUN_NNZ)
    yield from (_times_used(columns // (SECTOR_BYTES // 4), nnz) for nnz in RUN_NNZ)
    stride = max(1, pattern.nnz // MOST_COUNTED)
    uses = np.bincount(pattern.col_indices[::stride], minlength=pattern.num_cols) * stride
    yield from (float(uses[uses >= least].sum() / uses.sum()) for least in COLUMN_USES)
    yield float(np.log2(1 + pattern.nnz / pattern.num_cols) / 8)


def _times_used(columns: Int32Array, run: int) -> float:
    """Logarithm of the mean number of times that a column of a run of nonzeros is used in it."""
    row = columns.reshape(-1)
    runs = row[: row.size // run * run].reshape(-1, run) if row.size >= run else row[None, :]
    ordered = np.sort(runs, axis=1)
    distinct = 1 + (np.diff(ordered, axis=1) != 0).sum(axis=1)
    return float(np.log2(runs.size / distinct.sum()) / 4)
