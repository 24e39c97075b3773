"""Rows side by side in lanes, each group of lanes padded to a width of its own: what ELL, SELL and binned rows share.

Slots are filled by their own place, not by the nonzeros': memory is written in order, a piece that fits the cache at a
time.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.matrix.pattern import MAX_NNZ, Int32Array, Pattern

_SLOTS_AT_A_TIME = 1 << 16
"""Temporary arrays of this many slots stay in a core's cache."""


@dataclass(frozen=True)
class Lanes:
    """Which nonzeros each lane takes: first, first + stride, first + 2 * stride, ... all before past."""

    first: Int32Array
    """Shape [groups, lanes]; any nonzero in a lane without a row."""
    past: Int32Array
    """One past the last nonzero of the lane's row, shape [groups, lanes]; no more than `first` in an empty lane."""
    is_empty: npt.NDArray[np.bool_]
    """Lanes whose row has no nonzero, or which have no row, shape [groups, lanes]."""
    widths: npt.NDArray[np.integer]
    """Slots of each lane, shape [groups]."""
    empty_columns: Int32Array
    """Column that pads the empty lanes of each group, shape [groups]."""
    stride: int = 1

    @property
    def num_slots(self) -> int:
        lanes: int = self.first.shape[1]
        return int(self.widths.sum(dtype=np.int64)) * lanes

    def filled(self, pattern: Pattern) -> tuple[Int32Array, Int32Array]:
        """Column and source of each slot: lane by lane for each step of the first group, then of the next.

        Padding has the source -1 and the last column of its row.
        """
        columns, sources = np.empty(self.num_slots, np.int32), np.empty(self.num_slots, np.int32)
        self.fill(pattern, columns, sources)
        return columns, sources

    def fill(self, pattern: Pattern, columns: Int32Array, sources: Int32Array) -> None:
        """As `filled`, into arrays of that size."""
        shape = (-1, self.first.shape[1])
        columns, sources = columns.reshape(shape), sources.reshape(shape)
        groups, reached = self._steps(pattern.nnz)
        some_empty = bool(self.is_empty.any())
        at_a_time = max(1, _SLOTS_AT_A_TIME // self.first.shape[1])
        for start in range(0, groups.size, at_a_time):
            piece = slice(start, start + at_a_time)
            group = groups[piece]
            nonzeros = self.first[group] + reached[piece, None]
            past = self.past[group]
            np.take(pattern.col_indices, np.minimum(nonzeros, past - 1), mode="clip", out=columns[piece])
            nonzeros[nonzeros >= past] = -1
            sources[piece] = nonzeros
            if some_empty:
                np.copyto(columns[piece], self.empty_columns[group, None], where=self.is_empty[group])

    def _steps(self, nnz: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.integer]]:
        """Group of each step, and what its nonzeros are past the lane's first; wide enough to be added to it."""
        groups = np.repeat(np.arange(self.widths.size), self.widths)
        begins = np.cumsum(self.widths, dtype=np.int64) - self.widths
        reached = (np.arange(groups.size) - np.repeat(begins, self.widths)) * self.stride
        fits = nnz + int(reached.max(initial=0)) <= MAX_NNZ
        return groups, reached.astype(np.int32) if fits else reached


def padded_row_offsets(pattern: Pattern, rows: int) -> Int32Array:
    """Row offsets with empty rows at the end, up to a multiple of so many rows."""
    return np.append(pattern.row_offsets, np.full(-pattern.num_rows % rows, pattern.nnz, np.int32))
