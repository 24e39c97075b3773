"""Slots of a slice aligned to windows of columns: all lanes' columns of one slot lie within reach of a common base.

Slot by slot, the base is the smallest column that any lane has still to store; lanes whose next column lies within
reach store it, the others wait, and their slot is padding. Rows with the same neighbours relative to their own place
(stencils, meshes, bands) hardly ever wait, so that 8 bits a column do where 16 from the slice's smallest would not.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.format import MAX_OFFSET, NARROW_REACH, Narrow, NarrowArray, narrowed
from sparsesmith.matrix.pattern import Int32Array, Pattern

REACHES: Mapping[str, Narrow] = {"u8": "u8", "u16_slot": "u16"}
"""Width of the offsets by value of `index`."""

LONGEST_ROW = 16384
"""Nonzeros of a row at most: slots are cut one after another."""

MOST_SLOTS = 2
"""Slots at most, for each slot without windows: with more, wider columns are smaller."""

NO_COLUMN = np.iinfo(np.int32).max
PADDING = -1


@dataclass(frozen=True)
class Slot:
    """One slot of every slice that has as many."""

    slices: npt.NDArray[np.intp]
    """Ascending, shape [slices]."""
    bases: Int32Array
    """Shape [slices]."""
    offsets: NarrowArray
    """Column minus base, 0 in padding, shape [slices, lanes]."""
    nonzeros: Int32Array
    """Position in CSR order, -1 in padding, shape [slices, lanes]."""


@dataclass(frozen=True)
class Windows:
    """Slices one after another, slots in order."""

    first: Int32Array
    """First slot of each slice, in slots of all its lanes, shape [num_slices + 1]."""
    bases: Int32Array
    """Shape [slots]."""
    offsets: NarrowArray
    """Shape [slots, lanes]."""
    nonzeros: Int32Array
    """Shape [slots, lanes]."""


def windows_of(pattern: Pattern, rows: Int32Array, index: str) -> Iterator[Slot]:
    """Slots 0, 1, ... of slices with these rows, shape [slices, lanes], -1 for none.

    Raises InvalidProgram for a row longer than LONGEST_ROW, and as soon as there are more than MOST_SLOTS times the
    slots that the rows' lengths take.
    """
    width = REACHES[index]
    reach = NARROW_REACH[width]
    nonzero, end = _bounds(pattern, rows)
    longest = (end - nonzero).max(axis=1, initial=0)
    _refuse(index, "the longest row has", int(longest.max(initial=0)), LONGEST_ROW, "nonzeros")
    limit = min(MOST_SLOTS * int(longest.sum(dtype=np.int64)) * rows.shape[1], MAX_OFFSET)
    slices, num_slots = np.arange(rows.shape[0]), 0
    while True:
        busy = np.flatnonzero((nonzero < end).any(axis=1))
        if not busy.size:
            return
        if busy.size < slices.size:
            slices, nonzero, end = slices[busy], nonzero[busy], end[busy]
        num_slots += nonzero.size
        _refuse(index, "there would be", num_slots, limit, "slots")
        taken = nonzero < end
        columns = np.where(taken, pattern.col_indices[np.minimum(nonzero, pattern.nnz - 1)], NO_COLUMN)
        bases = columns.min(axis=1)
        columns -= bases[:, None]
        taken &= columns < reach
        yield Slot(slices, bases, narrowed(columns * taken, width), np.where(taken, nonzero, PADDING))
        nonzero = nonzero + taken


def place_in_windows(slots: Iterator[Slot], num_slices: int) -> Windows:
    """All slots of a slice side by side."""
    listed = list(slots)
    widths = np.zeros(num_slices, np.int32)
    for slot in listed:
        widths[slot.slices] += 1
    first = np.zeros(num_slices + 1, np.int32)
    np.cumsum(widths, out=first[1:])
    shape = (int(first[-1]), listed[0].offsets.shape[1])
    bases = np.empty(shape[0], np.int32)
    offsets = np.empty(shape, listed[0].offsets.dtype)
    nonzeros = np.empty(shape, np.int32)
    for number, slot in enumerate(listed):
        places = first[slot.slices] + number
        bases[places], offsets[places], nonzeros[places] = slot.bases, slot.offsets, slot.nonzeros
    return Windows(first, bases, offsets, nonzeros)


def padding_in_windows(pattern: Pattern, rows: Int32Array, index: str) -> float:
    """Slots for each slot that the rows' lengths take, at least 1; infinite where windows are refused."""
    nonzero, end = _bounds(pattern, rows)
    plain = int((end - nonzero).max(axis=1, initial=0).sum(dtype=np.int64)) * rows.shape[1]
    try:
        return float(sum(slot.offsets.size for slot in windows_of(pattern, rows, index)) / max(plain, 1))
    except InvalidProgram:
        return np.inf


def _bounds(pattern: Pattern, rows: Int32Array) -> tuple[Int32Array, Int32Array]:
    """First nonzero of each lane and the end of its row."""
    held = np.maximum(rows, 0)
    begin: Int32Array = pattern.row_offsets[held]
    return begin, np.where(rows >= 0, pattern.row_offsets[held + 1], begin)


def _refuse(index: str, what: str, value: int, limit: int, unit: str) -> None:
    if value > limit:
        raise InvalidProgram(
            f"format sell: index={index} does not fit: {what} {value} {unit} or more (at most {limit})",
            field="index",
            value=value,
            limit=limit,
        )
