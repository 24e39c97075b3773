"""CSR with the work cut into equal segments, found ahead of time; rows that cross a segment end need a carry.

`balance=merge` counts row ends and nonzeros alike (Merrill and Garland, "Merge-based parallel sparse matrix-vector
multiplication", SC16); `balance=nnz` counts nonzeros only.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.formats.csr import ROW_OFFSETS, VALUES_IN_CSR_ORDER, col_indices_in_csr_order
from sparsesmith.formats.format import (
    Argument,
    Format,
    IntegerRange,
    Layout,
    OneOf,
    Parameters,
    ParameterSpec,
    narrow_columns,
    refuse_overflow,
    whole,
)
from sparsesmith.matrix.pattern import Int32Array, Pattern

CARRY = Argument(
    "T*",
    "carry",
    "scratch",
    "garbage at the start; length num_segments for spmv, num_segments * num_dense_cols for spmm",
)

SEGMENT_COL_BASE = Argument(
    "const int*",
    "segment_col_base",
    "index",
    "smallest column of each segment (0 for one without nonzeros), length num_segments",
)


@dataclass(frozen=True)
class CsrMerge(Format):
    name: str = "csr_merge"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {
            "items": IntegerRange(256, 8, 65536),
            "balance": OneOf("merge", ("merge", "nnz")),
            "index": OneOf("i32", ("i32", "u16", "u8")),
        }

    @property
    def has_padding(self) -> bool:
        return False

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        narrow = parameters["index"] != "i32"
        cut = "merge-path diagonal" if parameters["balance"] == "merge" else "nonzero"
        return (
            Argument("int", "num_segments", "size", "segments of equal work"),
            Argument(
                "const int*",
                "segment_rows",
                "index",
                f"row that {cut} s * items lies in, length num_segments + 1: 0 at the start, num_rows at the end",
            ),
            Argument(
                "const int*",
                "segment_offsets",
                "index",
                "first nonzero of each segment, length num_segments + 1: 0 at the start, nnz at the end",
            ),
            *((SEGMENT_COL_BASE,) if narrow else ()),
            ROW_OFFSETS,
            col_indices_in_csr_order(
                parameters, "column of each nonzero" + (" minus its segment's segment_col_base" if narrow else "")
            ),
            VALUES_IN_CSR_ORDER,
            CARRY,
        )

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        items = whole(parameters, "items")
        cut = _cut_merge_path if parameters["balance"] == "merge" else _cut_nonzeros
        segment_rows, segment_offsets = cut(pattern, items)
        num_segments = segment_rows.size - 1
        indices: dict[str, npt.NDArray[np.generic]] = {"segment_rows": segment_rows, "segment_offsets": segment_offsets}
        if parameters["index"] != "i32":
            base = _smallest_columns(pattern, segment_offsets)
            offsets = pattern.col_indices - np.repeat(base, np.diff(segment_offsets))
            indices["segment_col_base"] = base
            reach = "the columns of each segment"
            indices["col_indices"] = narrow_columns(offsets, self.name, reach, parameters["index"])
        else:
            indices["col_indices"] = pattern.col_indices
        return Layout(
            sizes={"num_segments": num_segments},
            indices={**indices, "row_offsets": pattern.row_offsets},
            value_sources=None,
            num_slots=pattern.nnz,
            scratch={CARRY.name: num_segments},
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        columns = layout.indices["col_indices"].astype(np.int32, copy=False)
        if parameters["index"] != "i32":
            base = layout.indices["segment_col_base"].astype(np.int32, copy=False)
            columns = columns + np.repeat(base, np.diff(layout.indices["segment_offsets"].astype(np.int32)))
        return Pattern(num_rows, num_cols, layout.indices["row_offsets"].astype(np.int32, copy=False), columns)


def _smallest_columns(pattern: Pattern, segment_offsets: Int32Array) -> Int32Array:
    """Of each segment, 0 for one of row ends only."""
    base = np.zeros(segment_offsets.size - 1, np.int32)
    filled = np.flatnonzero(np.diff(segment_offsets))
    base[filled] = np.minimum.reduceat(pattern.col_indices, segment_offsets[filled])
    return base


def _cut_merge_path(pattern: Pattern, items: int) -> tuple[Int32Array, Int32Array]:
    """Coordinates (row, nonzero) where diagonals s * items cross the path that merges row ends with nonzeros.

    Row r ends after all its nonzeros and r earlier row ends: as item number row_offsets[r + 1] + r of the path.
    """
    path_length = pattern.num_rows + pattern.nnz
    refuse_overflow("csr_merge", "num_rows + nnz", path_length + items)
    diagonals = np.append(np.arange(0, path_length, items, dtype=np.int64), path_length)
    row_end_items = pattern.row_offsets[1:].astype(np.int64) + np.arange(pattern.num_rows)
    rows = np.searchsorted(row_end_items, diagonals, side="left")
    return rows.astype(np.int32), (diagonals - rows).astype(np.int32)


def _cut_nonzeros(pattern: Pattern, items: int) -> tuple[Int32Array, Int32Array]:
    """Nonzeros s * items and the rows that hold them; the first segment also takes the empty rows before its own."""
    refuse_overflow("csr_merge", "nnz", pattern.nnz + items)
    offsets = np.append(np.arange(0, pattern.nnz, items, dtype=np.int32), np.int32(pattern.nnz))
    rows = pattern.rows_of(offsets)
    rows[0] = 0
    return rows.astype(np.int32), offsets
