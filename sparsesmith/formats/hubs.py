"""Popular columns renumbered: x of the hubs fits shared memory, so that most reads of x never leave a multiprocessor.

Nonzeros are in CSR order, an empty row has one slot of padding, and the end is padded to whole segments of 32 lanes;
a bitmap with ranks tells where rows begin.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.formats.format import (
    Argument,
    Format,
    IntegerRange,
    Layout,
    OneOf,
    Parameters,
    ParameterSpec,
    pattern_of_slots,
    refuse_overflow,
    refuse_padding,
    whole,
)
from sparsesmith.matrix.pattern import Pattern

ALIGNMENT = 4
"""Vector loads may read the copy of x to its end."""
LANES = 32
WORD_BITS = 32
_NONZEROS_AT_A_TIME = 1 << 16
"""Temporary arrays of this size stay in a core's cache."""

_ARGUMENTS = (
    Argument("int", "num_hubs", "size", "hubs: hub_cols, or num_cols if that is less"),
    Argument("int", "num_segments", "size", "segments of 32 * items slots, the last one padded"),
    Argument("const int*", "hub_columns", "index", "column of each hub, most popular first, length num_hubs"),
    Argument(
        "const int*",
        "row_starts",
        "index",
        "bit j % 32 of word j / 32 tells whether slot j is the first of its row, length num_segments * items; "
        "every row has a slot",
    ),
    Argument(
        "const int*",
        "row_ranks",
        "index",
        "rows that begin before each word of row_starts, length num_segments * items",
    ),
    Argument(
        "const int*",
        "col_indices",
        "index",
        "for each slot the number of its hub, or num_hubs more than its column; 0 for padding",
    ),
    Argument("const T*", "values", "values", "value of each slot, zero for padding"),
    Argument("T*", "hub_x", "scratch", "garbage at the start; length num_hubs rounded up to a multiple of 4"),
)


@dataclass(frozen=True)
class Hubs(Format):
    name: str = "hubs"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {"hub_cols": IntegerRange(32768, 1, 65536), "items": OneOf(8, (2, 4, 8, 16))}

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        return _ARGUMENTS

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        lengths = np.maximum(pattern.row_lengths, 1)
        row_slots = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        segment = LANES * whole(parameters, "items")
        num_segments = -(-int(row_slots[-1]) // segment)
        num_slots = num_segments * segment
        refuse_padding("hubs", num_slots, pattern.nnz)
        hubs, numbers = numbered_by_hub("hubs", pattern, whole(parameters, "hub_cols"))
        # Empty rows before a nonzero move it.
        moved = np.repeat((row_slots[:-1] - pattern.row_offsets[:-1]).astype(np.int32), pattern.row_lengths)
        columns, sources = np.zeros(num_slots, np.int32), np.full(num_slots, -1, np.int32)
        for first in range(0, pattern.nnz, _NONZEROS_AT_A_TIME):
            piece = slice(first, first + _NONZEROS_AT_A_TIME)
            nonzeros = np.arange(first, min(piece.stop, pattern.nnz))
            slots = nonzeros + moved[piece]
            columns[slots] = numbers.take(pattern.col_indices[piece])
            sources[slots] = nonzeros
        starts = np.zeros(num_slots, np.bool_)
        starts[row_slots[:-1]] = True
        in_word = starts.reshape(-1, WORD_BITS).sum(axis=1)
        return Layout(
            sizes={"num_hubs": hubs.size, "num_segments": num_segments},
            indices={
                "hub_columns": hubs,
                "row_starts": np.packbits(starts, bitorder="little").view("<i4").astype(np.int32, copy=False),
                "row_ranks": (np.cumsum(in_word) - in_word).astype(np.int32),
                "col_indices": columns,
            },
            value_sources=sources,
            num_slots=num_slots,
            scratch={"hub_x": -(-hubs.size // ALIGNMENT) * ALIGNMENT},
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        indices, hubs = layout.indices, layout.indices["hub_columns"]
        starts = np.unpackbits(indices["row_starts"].astype("<i4").view(np.uint8), bitorder="little")
        rows = np.cumsum(starts, dtype=np.int64) - 1
        numbers = np.concatenate([hubs, np.arange(num_cols)])
        return pattern_of_slots(num_rows, num_cols, rows, numbers[indices["col_indices"]], layout)


def numbered_by_hub(
    format_name: str, pattern: Pattern, hub_cols: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The columns with most nonzeros, most popular first, lower columns first among equals; and the number of every
    column: that of its hub, or as many more than the column as there are hubs.

    Raises InvalidProgram where such numbers do not fit in 32 bits.
    """
    counts = np.bincount(pattern.col_indices, minlength=pattern.num_cols)
    hubs = np.argsort(-counts, kind="stable")[:hub_cols].astype(np.int32)
    refuse_overflow(format_name, "num_cols + num_hubs", pattern.num_cols + hubs.size)
    numbers = np.arange(hubs.size, hubs.size + pattern.num_cols, dtype=np.int32)
    numbers[hubs] = np.arange(hubs.size, dtype=np.int32)
    return hubs, numbers
