"""SELL-C-sigma: rows sorted by length in windows, cut into slices of C lanes, each slice padded to its own longest row.

Source: Kreutzer et al., "A unified sparse matrix data format for efficient general sparse matrix-vector multiplication
on modern processors with wide SIMD units", SIAM J. Sci. Comput. 36(5), 2014.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.formats.building.lanes import Lanes
from sparsesmith.formats.building.numbering import NATURAL, ROWS, ROWS_BY_BREADTH, numbered_by
from sparsesmith.formats.building.windows import REACHES, place_in_windows, windows_of
from sparsesmith.formats.format import (
    Argument,
    Format,
    IntegerRange,
    Layout,
    OneOf,
    Parameters,
    ParameterSpec,
    index_type,
    narrow_columns,
    pattern_of_slots,
    refuse_overflow,
    refuse_padding,
    whole,
)
from sparsesmith.matrix.pattern import Int32Array, Pattern

NO_ROW = -1


@dataclass(frozen=True)
class Sell(Format):
    name: str = "sell"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {
            "slice": OneOf(32, (4, 8, 16, 32, 64, 128, 256)),
            "sigma": IntegerRange(1, 0, 1048576),
            "index": OneOf("i32", ("i32", "u16", "u8", "u16_slot")),
            "rows": ROWS,
        }

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        lanes = f"slice = {parameters['slice']} lanes"
        return (
            Argument("int", "num_slices", "size", f"slices of {lanes}"),
            Argument("const int*", "slice_offsets", "index", "first slot of each slice, length num_slices + 1"),
            Argument(
                "const int*",
                "row_permutation",
                "index",
                "row of lane l of slice s at s * slice + l, -1 for a lane without a row, length num_slices * slice",
            ),
            *_column_arguments(parameters),
            Argument(
                "const T*", "values", "values", "value of each slot, in the order of col_indices; padding is zero"
            ),
        )

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        if parameters["rows"] == NATURAL:
            return self._build(pattern, parameters)
        numbered, saved_ms = numbered_by(pattern, ROWS_BY_BREADTH)
        layout = self._build(numbered.pattern, parameters)
        return numbered.with_users_rows(layout, "row_permutation", saved_ms=saved_ms)

    def _build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        """In the order of the rows."""
        slices = cut_slices(pattern, whole(parameters, "slice"), whole(parameters, "sigma"))
        if parameters["index"] in REACHES:
            return _in_windows(pattern, slices, parameters)
        narrow = parameters["index"] == "u16"
        if narrow:
            narrow_columns(slices.spans(pattern), self.name, "the columns of each slice")
        columns, value_sources = slices.lanes.filled(pattern)
        indices: dict[str, npt.NDArray[np.generic]] = {
            "slice_offsets": slices.offsets,
            "row_permutation": slices.row_permutation,
        }
        if narrow:
            by_lane = columns.reshape(-1, slices.lanes.first.shape[1])
            by_lane -= np.repeat(slices.smallest_columns, slices.widths)[:, None]
            indices["slice_col_base"] = slices.smallest_columns
        indices["col_indices"] = columns.astype(np.uint16) if narrow else columns
        return Layout(
            sizes={"num_slices": slices.widths.size},
            indices=indices,
            value_sources=value_sources,
            num_slots=columns.size,
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        slot_rows, columns = rows_and_columns(layout, parameters, "row_permutation", "col_indices")
        return pattern_of_slots(num_rows, num_cols, slot_rows, columns, layout)


def _column_arguments(parameters: Parameters) -> tuple[Argument, ...]:
    """Where columns count from, and the columns."""
    place = "column of slot k of lane l of slice s at slice_offsets[s] + k * slice + l"
    if parameters["index"] in REACHES:
        base = Argument(
            "const int*",
            "slot_col_base",
            "index",
            "smallest column of slot k of slice s at slice_offsets[s] / slice + k, length slice_offsets[num_slices] / "
            "slice",
        )
        meaning = f"{place}, minus slot_col_base[slice_offsets[s] / slice + k]; 0 in padding, which may lie between"
        return (base, Argument(index_type(parameters), "col_indices", "index", meaning))
    padding = "padding repeats the lane's last column, the slice's smallest in an empty lane"
    if parameters["index"] == "i32":
        return (Argument("const int*", "col_indices", "index", f"{place}; {padding}"),)
    meaning = f"{place}; {padding}; minus slice_col_base[s]"
    return (
        Argument("const int*", "slice_col_base", "index", "smallest column of each slice, length num_slices"),
        Argument(index_type(parameters), "col_indices", "index", meaning),
    )


def _in_windows(pattern: Pattern, slices: "Slices", parameters: Parameters) -> Layout:
    """Slots of a lane put off until their columns lie within reach of their slot's base."""
    lanes = slices.lanes.first.shape[1]
    rows = slices.row_permutation.reshape(-1, lanes)
    windows = place_in_windows(windows_of(pattern, rows, str(parameters["index"])), rows.shape[0])
    return Layout(
        sizes={"num_slices": slices.widths.size},
        indices={
            "slice_offsets": windows.first * np.int32(lanes),
            "row_permutation": slices.row_permutation,
            "slot_col_base": windows.bases,
            "col_indices": windows.offsets.reshape(-1),
        },
        value_sources=windows.nonzeros.reshape(-1),
        num_slots=windows.offsets.size,
    )


def rows_and_columns(
    layout: Layout, parameters: Parameters, permutation: str, col_indices: str
) -> tuple[Int32Array, Int32Array]:
    """Row and column of each slot, from the arrays of these names."""
    slice_slots = np.diff(layout.indices["slice_offsets"].astype(np.int32, copy=False))
    columns = layout.indices[col_indices].astype(np.int32)
    if parameters["index"] == "u16":
        columns += np.repeat(layout.indices["slice_col_base"].astype(np.int32, copy=False), slice_slots)
    elif parameters["index"] in REACHES:
        columns += np.repeat(layout.indices["slot_col_base"].astype(np.int32, copy=False), whole(parameters, "slice"))
    lanes = layout.indices[permutation].reshape(-1, whole(parameters, "slice")).astype(np.int32, copy=False)
    slot_rows = np.repeat(lanes, slice_slots // lanes.shape[1], axis=0).reshape(-1)
    return slot_rows, columns


@dataclass(frozen=True)
class Slices:
    """Where the rows of a pattern go."""

    row_permutation: Int32Array
    """Row of each lane, -1 for none, shape [num_slices * slice]."""
    offsets: Int32Array
    """First slot of each slice, shape [num_slices + 1]."""
    lanes: Lanes
    """The rows, a group for each slice; an empty lane has the slice's smallest column."""

    @property
    def widths(self) -> npt.NDArray[np.integer]:
        """Slots of a lane, shape [num_slices]."""
        return self.lanes.widths

    @property
    def smallest_columns(self) -> Int32Array:
        """Shape [num_slices], 0 for a slice without nonzeros."""
        return self.lanes.empty_columns

    def spans(self, pattern: Pattern) -> Int32Array:
        """Largest less smallest column of each slice, shape [num_slices]."""
        last = pattern.col_indices.take(self.lanes.past - 1, mode="clip")
        last[self.lanes.is_empty] = 0
        spans: Int32Array = np.maximum(last.max(axis=1) - self.smallest_columns, 0)
        return spans


def cut_slices(pattern: Pattern, lanes: int, sigma: int) -> Slices:
    """Sorts, permutes and slices the rows. Raises InvalidProgram where padding or 32-bit offsets forbid it."""
    num_slices = -(-pattern.num_rows // lanes)
    refuse_overflow("sell", "num_slices * slice", num_slices * lanes)
    permutation = np.full(num_slices * lanes, NO_ROW, np.int32)
    permutation[: pattern.num_rows] = sorted_rows(pattern.row_lengths, sigma)
    shape = (num_slices, lanes)
    first = _of_lanes(pattern.row_offsets[:-1], permutation).reshape(shape)
    past = _of_lanes(pattern.row_offsets[1:], permutation).reshape(shape)
    widths = (past - first).max(axis=1)
    num_slots = int(widths.sum(dtype=np.int64)) * lanes
    refuse_padding("sell", num_slots, pattern.nnz)
    offsets = np.zeros(num_slices + 1, np.int32)
    np.cumsum(widths * lanes, out=offsets[1:])
    is_empty = first == past
    first_columns = pattern.col_indices.take(first, mode="clip")
    first_columns[is_empty] = np.iinfo(np.int32).max
    smallest = np.where(widths > 0, first_columns.min(axis=1), np.int32(0))
    return Slices(permutation, offsets, Lanes(first, past, is_empty, widths, smallest))


def sorted_rows(row_lengths: Int32Array, sigma: int) -> Int32Array:
    """Rows by descending length within windows of sigma rows (1: as they are, 0: one window); ties keep their order."""
    num_rows = row_lengths.size
    if sigma == 1:
        return np.arange(num_rows, dtype=np.int32)
    longest = int(row_lengths.max())
    window = np.arange(num_rows, dtype=np.int64) // (sigma or num_rows)
    return np.argsort(window * (longest + 1) + (longest - row_lengths), kind="stable").astype(np.int32)


def _of_lanes(per_row: Int32Array, permutation: Int32Array) -> Int32Array:
    """0 in a lane without a row."""
    per_lane: Int32Array = per_row[np.maximum(permutation, 0)]
    per_lane[permutation == NO_ROW] = 0
    return per_lane
