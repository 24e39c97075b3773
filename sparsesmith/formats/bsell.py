"""SELL-C-sigma of small dense blocks: neighbouring lanes own neighbouring block rows, so every load is coalesced.

Elements of the blocks in one slot of a slice lie in planes: as many at a time as a vector load takes, lane by lane.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from sparsesmith.formats.bsr import Bsr
from sparsesmith.formats.building.numbering import NATURAL
from sparsesmith.formats.format import (
    INDEX_WIDTH,
    Argument,
    Format,
    IntegerRange,
    Layout,
    OneOf,
    Parameters,
    ParameterSpec,
    index_type,
    pattern_of_slots,
    refuse_padding,
    whole,
)
from sparsesmith.formats.sell import Sell, rows_and_columns
from sparsesmith.matrix.pattern import Pattern

MAX_VECTOR = 4
_ELEMENTS_AT_A_TIME = 1 << 16
"""Temporary arrays of this size stay in a core's cache."""

_Number = TypeVar("_Number", np.int32, np.int64)


def vector_of(size: int) -> int:
    """Elements of a block that lie side by side: the largest of 4, 2 and 1 that divides its size."""
    vector = MAX_VECTOR
    while size % vector:
        vector //= 2
    return vector


@dataclass(frozen=True)
class Bsell(Format):
    name: str = "bsell"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {
            "block_rows": IntegerRange(2, 1, 16),
            "block_cols": IntegerRange(2, 1, 16),
            "slice": OneOf(32, (4, 8, 16, 32, 64, 128, 256)),
            "sigma": IntegerRange(1, 0, 1048576),
            "index": INDEX_WIDTH,
        }

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        rows, cols, slice_ = (whole(parameters, name) for name in ("block_rows", "block_cols", "slice"))
        vector = vector_of(rows * cols)
        narrow = parameters["index"] == "u16"
        base = Argument("const int*", "slice_col_base", "index", "smallest block column of each slice")
        return (
            Argument("int", "num_slices", "size", f"slices of {slice_} block rows of {rows} x {cols} blocks"),
            Argument("const int*", "slice_offsets", "index", "first block slot of each slice, length num_slices + 1"),
            Argument(
                "const int*",
                "block_row_permutation",
                "index",
                "block row of lane l of slice s at s * slice + l, -1 for a lane without one",
            ),
            *((base,) if narrow else ()),
            Argument(
                index_type(parameters),
                "block_col_indices",
                "index",
                "block column of slot k of lane l of slice s at slice_offsets[s] + k * slice + l; padding repeats the "
                "lane's last" + ("; minus slice_col_base[s]" if narrow else ""),
            ),
            Argument(
                "const T*",
                "values",
                "values",
                f"element e (row-major in a block) of that slot at (slice_offsets[s] + k * slice) * {rows * cols} + "
                f"(e / {vector} * slice + l) * {vector} + e % {vector}; zero where there is no nonzero; rows and "
                "columns beyond the matrix are padding: x must not be read, y not be written there",
            ),
        )

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        rows, cols, slice_ = (whole(parameters, name) for name in ("block_rows", "block_cols", "slice"))
        blocks = Bsr().build(pattern, {"block_rows": rows, "block_cols": cols})
        assert blocks.value_sources is not None
        of_blocks = Pattern(
            blocks.sizes["num_block_rows"],
            -(-pattern.num_cols // cols),
            blocks.indices["block_row_offsets"].astype(np.int32, copy=False),
            blocks.indices["block_col_indices"].astype(np.int32, copy=False),
        )
        of_slices = {name: parameters[name] for name in ("slice", "sigma", "index")}
        slices = Sell().build(of_blocks, {**of_slices, "rows": NATURAL})
        assert slices.value_sources is not None
        refuse_padding(self.name, slices.num_slots * rows * cols, pattern.nnz)
        indices: dict[str, npt.NDArray[np.generic]] = {
            "slice_offsets": slices.indices["slice_offsets"],
            "block_row_permutation": slices.indices["row_permutation"],
            "block_col_indices": slices.indices["col_indices"],
        }
        if parameters["index"] == "u16":
            indices["slice_col_base"] = slices.indices["slice_col_base"]
        return Layout(
            sizes=slices.sizes,
            indices=indices,
            value_sources=_sources_in_planes(
                blocks.value_sources.reshape(-1, rows * cols), slices.value_sources, slice_
            ),
            num_slots=slices.num_slots * rows * cols,
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        rows, cols, slice_ = (whole(parameters, name) for name in ("block_rows", "block_cols", "slice"))
        block_rows, block_cols = rows_and_columns(layout, parameters, "block_row_permutation", "block_col_indices")
        element = np.arange(rows * cols)
        slot_rows = _in_planes(block_rows[:, None].astype(np.int64) * rows + element // cols, slice_)
        slot_cols = _in_planes(block_cols[:, None].astype(np.int64) * cols + element % cols, slice_)
        return pattern_of_slots(num_rows, num_cols, slot_rows, slot_cols, layout)


def _sources_in_planes(
    of_blocks: npt.NDArray[np.int32], block_of_slot: npt.NDArray[np.int32], slice_: int
) -> npt.NDArray[np.int32]:
    """Sources in stored order, from those of each block, shape [blocks, size], and the block of each slot, or -1."""
    size = of_blocks.shape[1]
    sources = np.empty(block_of_slot.size * size, np.int32)
    at_a_time = max(1, _ELEMENTS_AT_A_TIME // (size * slice_)) * slice_
    for first in range(0, block_of_slot.size, at_a_time):
        blocks = block_of_slot[first : first + at_a_time]
        piece = of_blocks.take(blocks, axis=0, mode="clip")
        piece[blocks < 0] = -1
        sources[first * size : (first + at_a_time) * size] = _in_planes(piece, slice_)
    return sources


def _in_planes(elements: npt.NDArray[_Number], slice_: int) -> npt.NDArray[_Number]:
    """Elements of block slots, shape [slots, size], in stored order."""
    size = elements.shape[1]
    vector = vector_of(size)
    return elements.reshape(-1, slice_, size // vector, vector).transpose(0, 2, 1, 3).reshape(-1)
