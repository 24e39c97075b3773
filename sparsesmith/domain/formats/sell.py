"""SELL-C-sigma: rows sorted by length in windows, cut into slices of C lanes, each slice padded to its own longest row.

Source: Kreutzer et al., "A unified sparse matrix data format for efficient general sparse matrix-vector multiplication
on modern processors with wide SIMD units", SIAM J. Sci. Comput. 36(5), 2014.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.domain.formats.ell import last_column_of_each_row
from sparsesmith.domain.formats.format import (
    Argument,
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
from sparsesmith.domain.formats.windows import REACHES, place_in_windows, windows_of
from sparsesmith.domain.pattern import Int32Array, Pattern

NO_ROW = -1


@dataclass(frozen=True)
class Sell:
    name: str = "sell"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {
            "slice": OneOf(32, (4, 8, 16, 32, 64, 128, 256)),
            "sigma": IntegerRange(1, 0, 1048576),
            "index": OneOf("i32", ("i32", "u16", "u8", "u16_slot")),
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
        slices = cut_slices(pattern, whole(parameters, "slice"), whole(parameters, "sigma"))
        if parameters["index"] in REACHES:
            return _in_windows(pattern, slices, parameters)
        columns = np.repeat(slices.last_columns, slices.widths, axis=0).reshape(-1)
        slots = slices.slots(pattern)
        columns[slots] = pattern.col_indices
        value_sources = np.full(columns.size, -1, np.int32)
        value_sources[slots] = np.arange(pattern.nnz, dtype=np.int32)
        indices: dict[str, npt.NDArray[np.generic]] = {
            "slice_offsets": slices.offsets,
            "row_permutation": slices.row_permutation,
        }
        if parameters["index"] == "u16":
            columns -= np.repeat(slices.smallest_columns, np.diff(slices.offsets))
            indices["slice_col_base"] = slices.smallest_columns
            indices["col_indices"] = narrow_columns(columns, self.name, "the columns of each slice")
        else:
            indices["col_indices"] = columns
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
    lanes = slices.last_columns.shape[1]
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
    widths: Int32Array
    """Slots of a lane, shape [num_slices]."""
    last_columns: Int32Array
    """Column that pads each lane, shape [num_slices, slice]."""
    smallest_columns: Int32Array
    """Shape [num_slices], 0 for a slice without nonzeros."""

    def slots(self, pattern: Pattern) -> npt.NDArray[np.int64]:
        """Slot of each nonzero, in CSR order."""
        lanes: int = self.last_columns.shape[1]
        filled = np.flatnonzero(self.row_permutation != NO_ROW)
        first_slots = np.empty(pattern.num_rows, np.int64)
        first_slots[self.row_permutation[filled]] = self.offsets[filled // lanes] + filled % lanes
        first_slots -= lanes * pattern.row_offsets[:-1].astype(np.int64)
        slots: npt.NDArray[np.int64] = np.repeat(first_slots, pattern.row_lengths)
        return slots + lanes * np.arange(pattern.nnz, dtype=np.int64)


def cut_slices(pattern: Pattern, lanes: int, sigma: int) -> Slices:
    """Sorts, permutes and slices the rows. Raises InvalidProgram where padding or 32-bit offsets forbid it."""
    num_slices = -(-pattern.num_rows // lanes)
    refuse_overflow("sell", "num_slices * slice", num_slices * lanes)
    permutation = np.full(num_slices * lanes, NO_ROW, np.int32)
    permutation[: pattern.num_rows] = sorted_rows(pattern.row_lengths, sigma)
    lengths = _of_lanes(pattern.row_lengths, permutation, 0).reshape(num_slices, lanes)
    widths = lengths.max(axis=1)
    num_slots = int(widths.sum(dtype=np.int64)) * lanes
    refuse_padding("sell", num_slots, pattern.nnz)
    offsets = np.zeros(num_slices + 1, np.int32)
    np.cumsum(widths * lanes, out=offsets[1:])
    first_columns = pattern.col_indices[np.minimum(pattern.row_offsets[:-1], pattern.nnz - 1)]
    no_column = np.iinfo(np.int32).max
    first = np.where(lengths > 0, _of_lanes(first_columns, permutation, no_column).reshape(lengths.shape), no_column)
    smallest = np.where(widths > 0, first.min(axis=1), 0).astype(np.int32)
    last = _of_lanes(last_column_of_each_row(pattern), permutation, 0).reshape(lengths.shape)
    return Slices(permutation, offsets, widths, np.where(lengths > 0, last, smallest[:, None]), smallest)


def sorted_rows(row_lengths: Int32Array, sigma: int) -> Int32Array:
    """Rows by descending length within windows of sigma rows (1: as they are, 0: one window); ties keep their order."""
    num_rows = row_lengths.size
    if sigma == 1:
        return np.arange(num_rows, dtype=np.int32)
    longest = int(row_lengths.max())
    window = np.arange(num_rows, dtype=np.int64) // (sigma or num_rows)
    return np.argsort(window * (longest + 1) + (longest - row_lengths), kind="stable").astype(np.int32)


def _of_lanes(per_row: Int32Array, permutation: Int32Array, without_row: int) -> Int32Array:
    per_lane: Int32Array = per_row[np.maximum(permutation, 0)]
    per_lane[permutation == NO_ROW] = without_row
    return per_lane
