"""What is told of single nonzeros: position codes of their row, column and offset, as plain arrays.

`sinusoidal_codes` is SparseRL's embedding (section 3.2): e = [PE(row), PE(col)]. `structural_codes` adds what survives
a permutation or a change of size: normalised coordinates, the distance from the diagonal at several scales, the gap to
the row's previous nonzero, and whether the rows beside repeat the nonzero.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.matrix.pattern import Pattern

IntArray = npt.NDArray[np.int64]
Codes = npt.NDArray[np.float32]

SINUSOIDAL_WIDTH = 128
"""Numbers for one index."""
_BASE = 10000.0
_WAVES = 5
_DISTANCES = (1.0, 8.0, 64.0, 512.0, 4096.0)
_PERIODS = (2.0, 4.0, 8.0, 16.0, 32.0)


@dataclass(frozen=True)
class Nonzeros:
    """Sampled nonzeros in the pattern's order."""

    positions: IntArray
    """Index into `col_indices`, any shape."""
    rows: IntArray
    """Row of each, same shape."""
    cols: IntArray
    """Column of each, same shape."""


def nonzeros_at(pattern: Pattern, positions: IntArray) -> Nonzeros:
    """Rows and columns of nonzeros given by their place in CSR order."""
    return Nonzeros(positions, pattern.rows_of(positions), pattern.col_indices[positions].astype(np.int64))


def sinusoidal(indices: IntArray, width: int = SINUSOIDAL_WIDTH) -> Codes:
    """PE(i, 2j) = sin(i / 10000^(2j/width)), PE(i, 2j+1) = cos(...): shape [..., width]."""
    rates = _BASE ** (-np.arange(0, width, 2) / width)
    angles = indices[..., None] * rates
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(*indices.shape, width).astype(np.float32)


def sinusoidal_codes(nonzeros: Nonzeros) -> Codes:
    """e = [PE(row), PE(col)], shape [..., 2 * SINUSOIDAL_WIDTH]."""
    return np.concatenate([sinusoidal(nonzeros.rows), sinusoidal(nonzeros.cols)], axis=-1)


def min_max_codes(pattern: Pattern, nonzeros: Nonzeros) -> Codes:
    """Row and column, each from 0 to 1 over the matrix: shape [..., 2]. The max-min variant of SparseRL's ablation."""
    shares = nonzeros.rows / max(pattern.num_rows - 1, 1), nonzeros.cols / max(pattern.num_cols - 1, 1)
    return np.stack(shares, axis=-1).astype(np.float32)


def raw_codes(nonzeros: Nonzeros) -> Codes:
    """Row and column as they are, in units of 65,536, which half precision holds: shape [..., 2]. Likewise."""
    return (np.stack([nonzeros.rows, nonzeros.cols], axis=-1) / 2**16).astype(np.float32)


def structural_codes(pattern: Pattern, nonzeros: Nonzeros) -> Codes:
    """Shape [..., STRUCTURAL_WIDTH]; every number lies in about -2 to 2."""
    rows, cols = nonzeros.rows, nonzeros.cols
    parts = [
        _waves(rows / pattern.num_rows),
        _waves(cols / pattern.num_cols),
        _distance_codes(cols - rows),
        _distance_codes(np.rint(cols - rows * (pattern.num_cols / pattern.num_rows)).astype(np.int64)),
        _phases(rows),
        _phases(cols),
        _row_codes(pattern, nonzeros),
        _neighbour_codes(pattern, rows, cols),
    ]
    return np.concatenate(parts, axis=-1).astype(np.float32)


def contains(pattern: Pattern, rows: IntArray, cols: IntArray) -> npt.NDArray[np.bool_]:
    """Whether each (row, col) is a nonzero; False outside the matrix. One binary search for all rows together."""
    inside = (rows >= 0) & (rows < pattern.num_rows) & (cols >= 0) & (cols < pattern.num_cols)
    safe_rows = np.where(inside, rows, 0)
    low = pattern.row_offsets[safe_rows].astype(np.int64)
    end = pattern.row_offsets[safe_rows + 1].astype(np.int64)
    high = end.copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        before = pattern.col_indices[np.minimum(middle, pattern.nnz - 1)] < cols
        low = np.where(open_ & before, middle + 1, low)
        high = np.where(open_ & ~before, middle, high)
    hit: npt.NDArray[np.bool_] = inside & (low < end) & (pattern.col_indices[np.minimum(low, pattern.nnz - 1)] == cols)
    return hit


def _waves(share: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A coordinate in [0, 1) as itself and as sines of doubling frequency."""
    angles = share[..., None] * (np.pi * 2.0 ** np.arange(_WAVES))
    return np.concatenate([share[..., None], np.sin(angles), np.cos(angles)], axis=-1)


def _distance_codes(distance: IntArray) -> npt.NDArray[np.float64]:
    """A signed distance: logarithm, saturation at several scales, and whether it is exactly zero."""
    size = np.sign(distance) * np.log2(1.0 + np.abs(distance)) / 12
    scaled = np.tanh(distance[..., None] / np.array(_DISTANCES))
    return np.concatenate([size[..., None], scaled, (distance == 0)[..., None]], axis=-1)


def _phases(indices: IntArray) -> npt.NDArray[np.float64]:
    """Where an index stands within groups of 2 to 32: blocks, warps and sectors."""
    angles = indices[..., None] * (2 * np.pi / np.array(_PERIODS))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)


def _row_codes(pattern: Pattern, nonzeros: Nonzeros) -> npt.NDArray[np.float64]:
    """The row's length, the place within the row, the gap to the row's previous nonzero (0 for the first)."""
    begin = pattern.row_offsets[nonzeros.rows].astype(np.int64)
    length = pattern.row_offsets[nonzeros.rows + 1] - begin
    place = nonzeros.positions - begin
    previous = pattern.col_indices[np.maximum(nonzeros.positions - 1, 0)]
    gap = np.where(place > 0, nonzeros.cols - previous, 0)
    codes = (np.log2(1.0 + length) / 8, place / np.maximum(length, 1), place == 0, np.log2(1.0 + gap) / 8, gap == 1)
    return np.stack([np.asarray(code, np.float64) for code in codes], axis=-1)


def _neighbour_codes(pattern: Pattern, rows: IntArray, cols: IntArray) -> npt.NDArray[np.float64]:
    """Whether the rows above and below hold the same column and the one on the same diagonal; and the mirror image."""
    shifts = ((1, 0), (1, 1), (-1, 0), (-1, -1))
    hits = [contains(pattern, rows + down, cols + right) for down, right in shifts]
    return np.stack([*hits, contains(pattern, cols, rows)], axis=-1).astype(np.float64)


def _one_nonzero() -> Codes:
    pattern = Pattern(1, 1, np.array([0, 1], np.int32), np.array([0], np.int32))
    return structural_codes(pattern, nonzeros_at(pattern, np.zeros(1, np.int64)))


STRUCTURAL_WIDTH = int(_one_nonzero().shape[-1])
"""Numbers that `structural_codes` gives for one nonzero."""
