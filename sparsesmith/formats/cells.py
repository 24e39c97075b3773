"""Cells: windows of rows cut by panels of columns, for nearly dense matrices and several dense columns.

What a thread block multiplies at a time lies side by side, so that it can be copied to shared memory as it is, together
with the panel of the dense operand that all its rows read. Strips of `height` rows share a column entry: with 1 this is
CSR within a cell, with more a dense outer product that leaves out the columns in which the strip has nothing.
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
    refuse_bookkeeping,
    refuse_overflow,
    refuse_padding,
    whole,
)
from sparsesmith.matrix.pattern import Int32Array, Pattern

IntArray = npt.NDArray[np.int64]

ALIGNMENT_SLOTS = 16
"""Cells begin at multiples: columns and values are copied 16 bytes at a time."""

CELL_COLS = OneOf(128, (32, 64, 128, 256))
HEIGHT = OneOf(1, (1, 2, 4, 8))
PAD = OneOf(4, (1, 2, 4, 8, 16, 32))
MOST_PARTS = 32


@dataclass(frozen=True)
class Cells(Format):
    name: str = "cells"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {
            "strips": IntegerRange(16, 1, 512),
            "height": HEIGHT,
            "cell_cols": CELL_COLS,
            "pad": PAD,
            "parts": IntegerRange(1, 1, MOST_PARTS),
        }

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        partial = Argument(
            "T*", "partial", "scratch", "garbage at the start; length parts * num_rows for each dense column"
        )
        return (
            Argument("int", "num_windows", "size", "windows of strips * height rows"),
            Argument("int", "num_panels", "size", "panels of cell_cols columns"),
            Argument("int", "cell_slots", "size", f"most slots of a cell, a multiple of {ALIGNMENT_SLOTS}"),
            Argument(
                "const int*",
                "cell_offsets",
                "index",
                "first slot of each cell, a multiple of 16, length num_windows * num_panels + 1; that of window w and "
                "panel p is cell w * num_panels + p",
            ),
            Argument(
                "const int*",
                "strip_offsets",
                "index",
                "slots before strip s of a cell at cell * (strips + 1) + s, the end of the last strip behind it; "
                "multiples of pad",
            ),
            Argument(
                "const unsigned char*", "col_indices", "index", "column of each slot within its panel, ascending in a "
                "strip",
            ),
            Argument("const T*", "values", "values", "row i of a strip in slot j at j * height + i, zero for padding"),
            *((partial,) if parameters["parts"] != 1 else ()),
        )  # fmt: skip

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        grid = _grid(pattern, parameters)
        grid.refuse(pattern.nnz)
        order, entry, entry_keys = _entries(pattern, grid)
        strips, columns = np.divmod(entry_keys, grid.cell_cols)
        counts = np.bincount(strips, minlength=grid.num_strips)
        starts, strip_offsets, cell_offsets = _offsets(grid, counts)
        num_slots = int(cell_offsets[-1])
        refuse_padding("cells", num_slots * grid.height, pattern.nnz)
        firsts = np.cumsum(counts) - counts
        slots = starts[strips] + np.arange(strips.size) - firsts[strips]
        col_indices = np.zeros(num_slots, np.uint8)
        col_indices[slots] = columns
        _repeat_last(col_indices, starts, counts, grid.pad)
        sources = np.full(num_slots * grid.height, -1, np.int32)
        lanes = pattern.row_indices()[order] % grid.height
        sources[slots[entry] * grid.height + lanes] = order
        parts = whole(parameters, "parts")
        return Layout(
            sizes={
                "num_windows": grid.num_windows,
                "num_panels": grid.num_panels,
                "cell_slots": int(np.diff(cell_offsets).max()),
            },
            indices={
                "cell_offsets": cell_offsets.astype(np.int32),
                "strip_offsets": strip_offsets,
                "col_indices": col_indices,
            },
            value_sources=sources,
            num_slots=sources.size,
            scratch={"partial": parts * pattern.num_rows} if parts > 1 else {},
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        strips, height, cell_cols = (whole(parameters, name) for name in ("strips", "height", "cell_cols"))
        num_panels = layout.sizes["num_panels"]
        cell_offsets = layout.indices["cell_offsets"].astype(np.int64)
        bounds = layout.indices["strip_offsets"].astype(np.int64).reshape(-1, strips + 1)
        num_slots = int(cell_offsets[-1])
        first_rows, first_cols = np.zeros(num_slots, np.int64), np.zeros(num_slots, np.int64)
        cell, strip = np.divmod(np.arange(bounds.shape[0] * strips), strips)
        widths = np.diff(bounds, axis=1).reshape(-1)
        slots = _runs((cell_offsets[:-1, None] + bounds[:, :-1]).reshape(-1), widths)
        first_rows[slots] = np.repeat((cell // num_panels * strips + strip) * height, widths)
        first_cols[slots] = np.repeat(cell % num_panels * cell_cols, widths)
        columns = first_cols + layout.indices["col_indices"].astype(np.int64)
        slot_rows = (first_rows[:, None] + np.arange(height)).reshape(-1)
        return pattern_of_slots(num_rows, num_cols, slot_rows, np.repeat(columns, height), layout)


@dataclass(frozen=True)
class _Grid:
    num_windows: int
    num_panels: int
    strips: int
    """Of a cell."""
    height: int
    cell_cols: int
    pad: int

    @property
    def num_strips(self) -> int:
        """Of all cells."""
        return self.num_windows * self.num_panels * self.strips

    def refuse(self, nnz: int) -> None:
        """Raises InvalidProgram where the bounds of strips alone are more than nonzeros warrant."""
        num_bounds = self.num_windows * self.num_panels * (self.strips + 1)
        refuse_bookkeeping("cells", "strip_offsets", num_bounds, nnz)


def _grid(pattern: Pattern, parameters: Parameters) -> _Grid:
    strips, height, cell_cols = (whole(parameters, name) for name in ("strips", "height", "cell_cols"))
    num_windows, num_panels = -(-pattern.num_rows // (strips * height)), -(-pattern.num_cols // cell_cols)
    refuse_overflow("cells", "num_windows * strips * height", num_windows * strips * height)
    return _Grid(num_windows, num_panels, strips, height, cell_cols, whole(parameters, "pad"))


def _entries(pattern: Pattern, grid: _Grid) -> tuple[IntArray, IntArray, IntArray]:
    """The nonzeros by cell, strip, column and row; the column entry of each; and of each entry its strip, counted
    over all cells, times cell_cols plus its column within the panel."""
    strip_rows = pattern.row_indices().astype(np.int64) // grid.height
    panels, columns = np.divmod(pattern.col_indices.astype(np.int64), grid.cell_cols)
    cells = strip_rows // grid.strips * grid.num_panels + panels
    keys = (cells * grid.strips + strip_rows % grid.strips) * grid.cell_cols + columns
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    is_new = np.append(True, keys[1:] != keys[:-1])
    return order, np.cumsum(is_new) - 1, keys[is_new]


def _offsets(grid: _Grid, counts: IntArray) -> tuple[IntArray, Int32Array, IntArray]:
    """First slot of each strip, over all; the format's bounds of strips; first slot of each cell."""
    padded = (-(-counts // grid.pad) * grid.pad).reshape(-1, grid.strips)
    bounds = np.zeros((padded.shape[0], grid.strips + 1), np.int64)
    np.cumsum(padded, axis=1, out=bounds[:, 1:])
    cell_offsets = np.zeros(padded.shape[0] + 1, np.int64)
    np.cumsum(-(-bounds[:, -1] // ALIGNMENT_SLOTS) * ALIGNMENT_SLOTS, out=cell_offsets[1:])
    starts = (cell_offsets[:-1, None] + bounds[:, :-1]).reshape(-1)
    return starts, bounds.astype(np.int32).reshape(-1), cell_offsets


def _repeat_last(col_indices: npt.NDArray[np.uint8], starts: IntArray, counts: IntArray, pad: int) -> None:
    """Fills the padding of each strip with its last column."""
    missing = -counts % pad
    ends = starts + counts
    padding = _runs(ends, missing)
    col_indices[padding] = np.repeat(col_indices[np.maximum(ends - 1, 0)], missing)


def _runs(starts: IntArray, lengths: IntArray) -> IntArray:
    """The numbers from each start on, as many as its length, one run after another."""
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(starts, lengths) + within
