"""Diagonals: no column indices at all, one stored value for each row and each diagonal in use.

Whole diagonals one after another, or slices of rows one after another that hold their part of every diagonal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from sparsesmith.formats.format import (
    Argument,
    Format,
    GridOfSlots,
    Layout,
    OneOf,
    Parameters,
    ParameterSpec,
    pattern_of_slots,
    refuse_padding,
    whole,
)
from sparsesmith.matrix.pattern import Pattern, pieces

SAMPLED_LENGTHS = 999
"""Rows that tell which length is usual."""
MANY = 8
"""One of so many: marking them singly takes as long as marking all in order."""


@dataclass(frozen=True)
class Dia(Format):
    name: str = "dia"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {"slice": OneOf(0, (0, 32, 64, 128, 256))}

    @property
    def grid_of_slots(self) -> GridOfSlots:
        return GridOfSlots("num_rows", {"slice": 0})

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        slice_ = parameters["slice"]
        slot = f"(i / {slice_} * num_diagonals + d) * {slice_} + i % {slice_}" if slice_ else "d * num_rows + i"
        return (
            Argument("int", "num_diagonals", "size", "diagonals with a nonzero"),
            Argument(
                "const int*",
                "diagonal_offsets",
                "index",
                "column minus row of each diagonal, ascending, length num_diagonals",
            ),
            Argument(
                "const T*",
                "values",
                "values",
                f"value of diagonal d in row i at {slot}, zero where there is no nonzero; columns outside "
                "0 to num_cols - 1 are padding: x must not be read there",
            ),
        )

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        rows, offsets = pattern.row_indices(), diagonals_of(pattern)
        in_use = np.zeros(pattern.num_rows + pattern.num_cols - 1, np.bool_)
        in_use[offsets + (pattern.num_rows - 1)] = True
        slice_ = whole(parameters, "slice")
        num_slots = offsets.size * stored_rows(pattern.num_rows, slice_)
        refuse_padding(self.name, num_slots, pattern.nnz)
        rank = np.cumsum(in_use, dtype=np.int64) - 1
        value_sources = np.full(num_slots, -1, np.int32)
        for nonzeros in pieces(pattern.nnz):
            diagonals = rank[_diagonals(pattern, rows, nonzeros)]
            slots = _slots(diagonals, rows[nonzeros], offsets.size, pattern.num_rows, slice_)
            value_sources[slots] = np.arange(nonzeros.start, nonzeros.stop, dtype=np.int32)
        return Layout(
            sizes={"num_diagonals": offsets.size},
            indices={"diagonal_offsets": offsets},
            value_sources=value_sources,
            num_slots=num_slots,
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        slice_ = whole(parameters, "slice")
        offsets = layout.indices["diagonal_offsets"].astype(np.int64)
        rows = np.arange(stored_rows(num_rows, slice_), dtype=np.int64).reshape(-1, slice_ or num_rows)
        shape = (rows.shape[0], offsets.size, rows.shape[1])
        slot_rows = np.broadcast_to(rows[:, None, :], shape)
        slot_cols = slot_rows + offsets[:, None]
        return pattern_of_slots(num_rows, num_cols, slot_rows.reshape(-1), slot_cols.reshape(-1), layout)


def stored_rows(num_rows: int, slice_: int) -> int:
    """Values of a diagonal that are stored: whole slices, or just the rows where there are none (0)."""
    return -(-num_rows // slice_) * slice_ if slice_ else num_rows


def num_diagonals(pattern: Pattern) -> int:
    """Diagonals with a nonzero."""
    return int(diagonals_of(pattern).size)


_DIAGONALS: WeakKeyDictionary[Pattern, npt.NDArray[np.int32]] = WeakKeyDictionary()
"""Of patterns that are alive: families, facts and sizes ask for the same."""


def diagonals_of(pattern: Pattern) -> npt.NDArray[np.int32]:
    """Column minus row of every diagonal with a nonzero, ascending."""
    if pattern not in _DIAGONALS:
        _DIAGONALS[pattern] = _found(pattern)
    return _DIAGONALS[pattern]


def _found(pattern: Pattern) -> npt.NDArray[np.int32]:
    """A row as long as the one before, with the same columns one further, adds no diagonal: where most rows have one
    length, few nonzeros are left to be marked."""
    in_use = np.zeros(pattern.num_rows + pattern.num_cols - 1, np.bool_)
    lengths = pattern.row_lengths
    usual = int(np.median(lengths[:: max(1, lengths.size // SAMPLED_LENGTHS)]))
    is_usual = lengths == usual
    others = np.flatnonzero(~(is_usual[1:] & is_usual[:-1])) + 1
    moved = _moved(pattern, usual) if usual and others.size <= lengths.size // MANY else None
    if moved is None or moved.size > pattern.nnz // MANY:
        for nonzeros in pieces(pattern.nnz):
            rows = pattern.rows_of_run(nonzeros.start, nonzeros.stop)
            in_use[pattern.col_indices[nonzeros] - rows + np.int64(pattern.num_rows - 1)] = True
    else:
        starts, counts = pattern.row_offsets[others], lengths[others]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        for found in (np.arange(lengths[0]), moved, np.repeat(starts, counts) + within):
            in_use[pattern.col_indices[found] - pattern.rows_of(found) + (pattern.num_rows - 1)] = True
    return (np.flatnonzero(in_use) - (pattern.num_rows - 1)).astype(np.int32)


def _moved(pattern: Pattern, lag: int) -> npt.NDArray[np.int64]:
    """Nonzeros whose column is not one more than that of the one `lag` places before."""
    columns, found = pattern.col_indices, [np.empty(0, np.int64)]
    for piece in pieces(max(0, pattern.nnz - lag)):
        later = columns[piece.start + lag : piece.stop + lag]
        found.append(np.flatnonzero(later - columns[piece] != 1) + (piece.start + lag))
    return np.concatenate(found)


def _diagonals(pattern: Pattern, rows: npt.NDArray[np.int32], nonzeros: slice) -> npt.NDArray[np.int64]:
    """The diagonal of some nonzeros, counted from 0: column - row + num_rows - 1."""
    diagonals: npt.NDArray[np.int64] = pattern.col_indices[nonzeros].astype(np.int64)
    diagonals -= rows[nonzeros]
    diagonals += pattern.num_rows - 1
    return diagonals


def _slots(
    diagonals: npt.NDArray[np.int64], rows: npt.NDArray[np.int32], num_diagonals: int, num_rows: int, slice_: int
) -> npt.NDArray[np.int64]:
    """Slot of each nonzero, from the rank of its diagonal and its row."""
    if slice_ == 0:
        return diagonals * num_rows + rows
    return (rows // slice_ * np.int64(num_diagonals) + diagonals) * slice_ + rows % slice_
