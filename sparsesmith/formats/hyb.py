"""Hybrid of ELLPACK and a remainder: `width` slots a row, and what does not fit them apart.

Source: Bell and Garland, "Implementing sparse matrix-vector multiplication on throughput-oriented processors", SC09.
Two things differ. With `rest=rows` the remainder holds long rows whole, so that every row is written by one group of
threads and a product is one launch. And with 16-bit columns what lies too far off is remainder, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.formats.ell import ROW_ALIGNMENT
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
    refuse_overflow,
    refuse_padding,
    whole,
)
from sparsesmith.matrix.pattern import Int32Array, Pattern

MAX_WIDTH = 1024
REACH = 2**16
"""Columns that a slice's 16-bit numbers tell apart."""


@dataclass(frozen=True)
class Hyb(Format):
    name: str = "hyb"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {"width": IntegerRange(8, 1, MAX_WIDTH), "rest": OneOf("rows", ("rows", "coo")), "index": INDEX_WIDTH}

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        return (
            Argument("int", "stride", "size", "num_rows rounded up to a multiple of 32"),
            *(_ROWS_REST if parameters["rest"] == "rows" else _COO_REST),
            *((_BASES,) if parameters["index"] == "u16" else ()),
            Argument(
                index_type(parameters),
                "col_indices",
                "index",
                "column of slot k of row i at k * stride + i, length width * stride; padding repeats the row's last "
                "stored column, the slice's base where there is none"
                + ("; minus slice_col_base[i / 32]" if parameters["index"] == "u16" else ""),
            ),
            Argument("const int*", "rest_cols", "index", "column of each nonzero of the remainder, one 0 if none"),
            Argument(
                "const T*",
                "values",
                "values",
                "value of slot k of row i at k * stride + i, zero for padding; the remainder's from width * stride on",
            ),
        )

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        width = whole(parameters, "width")
        stride = -(-pattern.num_rows // ROW_ALIGNMENT) * ROW_ALIGNMENT
        refuse_overflow(self.name, "stride", stride)
        refuse_padding(self.name, width * stride, pattern.nnz)
        bases = slice_bases(pattern) if parameters["index"] == "u16" else np.zeros(stride // ROW_ALIGNMENT, np.int32)
        ranks, stored = _stored(pattern, parameters, bases)
        refuse_overflow(self.name, "slots", width * stride + pattern.nnz - stored.size)
        rows = pattern.row_indices()
        rest = np.flatnonzero(ranks < 0).astype(np.int32)
        indices: dict[str, npt.NDArray[np.generic]] = {}
        sizes = {"stride": stride}
        if parameters["rest"] == "rows":
            rest, rest_rows, offsets = _longest_first(pattern, rows[rest])
            sizes["num_rest_rows"] = rest_rows.size
            indices |= {
                "rest_mask": _mask(rest_rows, stride),
                "rest_rows": _at_least_one(rest_rows),
                "rest_offsets": offsets,
            }
        else:
            sizes["num_rest"] = rest.size
            indices["rest_rows"] = _at_least_one(rows[rest])
        slots = ranks[stored] * np.int64(stride) + rows[stored]
        columns = pattern.col_indices[stored]
        if parameters["index"] == "u16":
            indices["slice_col_base"] = bases
            columns = columns - bases[rows[stored] // ROW_ALIGNMENT]
        filled = _fill(columns, slots, rows[stored], width, stride)
        indices["col_indices"] = filled.astype(np.uint16) if parameters["index"] == "u16" else filled
        indices["rest_cols"] = _at_least_one(pattern.col_indices[rest])
        sources = np.full(width * stride + rest.size, -1, np.int32)
        sources[slots] = stored
        sources[width * stride :] = rest
        return Layout(sizes=sizes, indices=indices, value_sources=sources, num_slots=sources.size)

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        indices, stride, width = layout.indices, layout.sizes["stride"], whole(parameters, "width")
        slot_rows = np.tile(np.arange(stride, dtype=np.int32), width)
        columns = indices["col_indices"].astype(np.int32)
        if parameters["index"] == "u16":
            columns += indices["slice_col_base"].astype(np.int32)[slot_rows // ROW_ALIGNMENT]
        num_rest = layout.num_slots - width * stride
        rest_rows = indices["rest_rows"].astype(np.int32)
        if parameters["rest"] == "rows":
            rest_rows = np.repeat(rest_rows[: layout.sizes["num_rest_rows"]], np.diff(indices["rest_offsets"]))
        return pattern_of_slots(
            num_rows,
            num_cols,
            np.concatenate([slot_rows, rest_rows[:num_rest]]),
            np.concatenate([columns, indices["rest_cols"][:num_rest]]),
            layout,
        )


_ROWS_REST = (
    Argument("int", "num_rest_rows", "size", "rows that are stored whole in the remainder, and have no slot"),
    Argument("const int*", "rest_mask", "index", "bit i % 32 of word i / 32 tells whether row i is one of them"),
    Argument("const int*", "rest_rows", "index", "those rows, the longest first, one 0 if none"),
    Argument("const int*", "rest_offsets", "index", "where each begins in the remainder, length num_rest_rows + 1"),
)
_COO_REST = (
    Argument("int", "num_rest", "size", "nonzeros of the remainder: those beyond the first `width` of their row"),
    Argument("const int*", "rest_rows", "index", "row of each nonzero of the remainder, ascending, one 0 if none"),
)
_BASES = Argument(
    "const int*", "slice_col_base", "index", "first column that each 32 rows can tell, length stride / 32"
)


def slice_bases(pattern: Pattern) -> Int32Array:
    """The first of the 65536 columns that each 32 rows reach: about the middle of the rows' middle nonzeros is theirs.

    Shape [ceil(num_rows / 32)]. 0 throughout where the matrix has no more columns.
    """
    num_slices = -(-pattern.num_rows // ROW_ALIGNMENT)
    none = np.iinfo(np.int32).max
    middles = np.full(num_slices * ROW_ALIGNMENT, none, np.int32)
    held = np.flatnonzero(pattern.row_lengths)
    middles[held] = pattern.col_indices[(pattern.row_offsets[held] + pattern.row_lengths[held] // 2)]
    middles = np.sort(middles.reshape(num_slices, ROW_ALIGNMENT), axis=1)
    counts = np.count_nonzero(middles != none, axis=1)
    medians = np.where(counts > 0, middles[np.arange(num_slices), counts // 2 * (counts > 0)], 0)
    return np.clip(medians.astype(np.int64) - REACH // 2, 0, max(pattern.num_cols - REACH, 0)).astype(np.int32)


def within_reach(pattern: Pattern, bases: Int32Array) -> npt.NDArray[np.bool_]:
    """Whether each nonzero lies in the columns that its row's slice reaches, shape [nnz]."""
    if pattern.num_cols <= REACH:
        return np.ones(pattern.nnz, np.bool_)
    first = np.repeat(np.repeat(bases, ROW_ALIGNMENT)[: pattern.num_rows], pattern.row_lengths)
    return (pattern.col_indices >= first) & (pattern.col_indices - first < REACH)


def rows_within_reach(pattern: Pattern, bases: Int32Array) -> npt.NDArray[np.bool_]:
    """Whether all of a row lies in the columns that its slice reaches, shape [num_rows]; true for an empty row."""
    held = np.flatnonzero(pattern.row_lengths)
    first = bases[held // ROW_ALIGNMENT]
    within = np.ones(pattern.num_rows, np.bool_)
    within[held] = pattern.col_indices[pattern.row_offsets[held]] >= first
    within[held] &= pattern.col_indices[pattern.row_offsets[held + 1] - 1] - first < REACH
    return within


def _stored(pattern: Pattern, parameters: Parameters, bases: Int32Array) -> tuple[Int32Array, Int32Array]:
    """The slot within its row of each nonzero, -1 if it is remainder; and the nonzeros that have one."""
    width, is_narrow = whole(parameters, "width"), parameters["index"] == "u16"
    starts = pattern.row_offsets[:-1]
    if parameters["rest"] == "rows":
        fits = pattern.row_lengths <= width
        if is_narrow:
            fits &= rows_within_reach(pattern, bases)
        ranks = np.arange(pattern.nnz, dtype=np.int32) - np.repeat(starts, pattern.row_lengths)
        ranks[~np.repeat(fits, pattern.row_lengths)] = -1
    else:
        reached = within_reach(pattern, bases) if is_narrow else np.ones(pattern.nnz, np.bool_)
        before = np.concatenate([[0], np.cumsum(reached, dtype=np.int32)]).astype(np.int32)
        ranks = before[:-1] - np.repeat(before[starts], pattern.row_lengths)
        ranks[~reached | (ranks >= width)] = -1
    return ranks, np.flatnonzero(ranks >= 0).astype(np.int32)


def _longest_first(pattern: Pattern, rest_rows: Int32Array) -> tuple[Int32Array, Int32Array, Int32Array]:
    """The remainder's nonzeros in the order of its rows, longest first; those rows; where each begins."""
    rows = rest_rows[np.flatnonzero(np.diff(rest_rows, prepend=-1))]
    rows = rows[np.argsort(-pattern.row_lengths[rows], kind="stable")]
    lengths = pattern.row_lengths[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    starts = np.repeat(pattern.row_offsets[rows] - offsets[:-1], lengths)
    return (starts + np.arange(starts.size)).astype(np.int32), rows, offsets


def _fill(columns: Int32Array, slots: npt.NDArray[np.int64], rows: Int32Array, width: int, stride: int) -> Int32Array:
    """Columns of all slots: padding repeats the last of its row, 0 where a row has none."""
    last = np.zeros(stride, np.int32)
    last[rows] = columns
    filled = np.tile(last, width)
    filled[slots] = columns
    return filled


def _mask(rows: Int32Array, stride: int) -> Int32Array:
    bits = np.zeros(stride, np.bool_)
    bits[rows] = True
    return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32, copy=False)


def _at_least_one(array: Int32Array) -> Int32Array:
    return array if array.size else np.zeros(1, np.int32)
