"""CSR with consecutive rows gathered into blocks of about equal work: one thread block each (CSR-stream, CSR-adaptive).

Source: Greathouse and Daga, "Efficient sparse matrix-vector multiplication on GPUs using the CSR storage format", SC14.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sparsesmith.formats.csr import ROW_OFFSETS, VALUES_IN_CSR_ORDER, col_indices_in_csr_order
from sparsesmith.formats.format import (
    INDEX_WIDTH,
    Argument,
    Format,
    IntegerRange,
    Layout,
    Parameters,
    ParameterSpec,
    narrow_columns,
    whole,
)
from sparsesmith.matrix.pattern import Int32Array, Pattern

ROWS_AT_A_TIME = 1 << 18
"""Rows whose jump targets are held at once while the partition is searched: bounds the memory of the search."""


@dataclass(frozen=True)
class CsrRowblocks(Format):
    name: str = "csr_rowblocks"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {
            "nnz_per_block": IntegerRange(1024, 32, 16384),
            "max_rows": IntegerRange(1024, 1, 4096),
            "index": INDEX_WIDTH,
        }

    @property
    def has_padding(self) -> bool:
        return False

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        blocks = (
            Argument("int", "num_blocks", "size", "row blocks"),
            Argument(
                "const int*",
                "block_rows",
                "index",
                "first row of each block, length num_blocks + 1, ending in num_rows; a block holds at most "
                "nnz_per_block nonzeros and max_rows rows, or one longer row alone",
            ),
        )
        if parameters["index"] == "i32":
            return (*blocks, ROW_OFFSETS, col_indices_in_csr_order(parameters), VALUES_IN_CSR_ORDER)
        base = Argument(
            "const int*", "block_col_base", "index", "smallest column of each block (0 if empty), length num_blocks"
        )
        columns = col_indices_in_csr_order(parameters, "column of each nonzero minus its block's block_col_base")
        return (*blocks, base, ROW_OFFSETS, columns, VALUES_IN_CSR_ORDER)

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        block_rows = partition(pattern.row_offsets, whole(parameters, "nnz_per_block"), whole(parameters, "max_rows"))
        sizes = {"num_blocks": block_rows.size - 1}
        if parameters["index"] == "i32":
            indices = {
                "block_rows": block_rows,
                "row_offsets": pattern.row_offsets,
                "col_indices": pattern.col_indices,
            }
            return Layout(sizes=sizes, indices=indices, value_sources=None, num_slots=pattern.nnz)
        base = _smallest_columns(pattern, block_rows)
        offsets = pattern.col_indices - np.repeat(base, np.diff(pattern.row_offsets[block_rows]))
        return Layout(
            sizes=sizes,
            indices={
                "block_rows": block_rows,
                "block_col_base": base,
                "row_offsets": pattern.row_offsets,
                "col_indices": narrow_columns(offsets, self.name, "the columns of each row block"),
            },
            value_sources=None,
            num_slots=pattern.nnz,
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        row_offsets = layout.indices["row_offsets"].astype(np.int32, copy=False)
        columns = layout.indices["col_indices"].astype(np.int32, copy=False)
        if parameters["index"] == "u16":
            base = layout.indices["block_col_base"].astype(np.int32, copy=False)
            columns = columns + np.repeat(base, np.diff(row_offsets[layout.indices["block_rows"].astype(np.int32)]))
        return Pattern(num_rows, num_cols, row_offsets, columns)


def partition(row_offsets: Int32Array, nnz_per_block: int, max_rows: int) -> Int32Array:
    """Greedy partition of the rows: first row of each block, and num_rows at the end."""
    num_rows = row_offsets.size - 1
    boundaries = [np.zeros(1, np.int32)]
    row = 0
    while row < num_rows:
        window = np.arange(row, min(row + ROWS_AT_A_TIME, num_rows))
        past_nnz = np.minimum(row_offsets[window].astype(np.int64) + nnz_per_block, row_offsets[-1])
        # Of another type than the offsets, NumPy would convert all of them for each window.
        within_nnz = np.searchsorted(row_offsets, past_nnz.astype(np.int32), "right") - 1
        block_ends = np.maximum(np.minimum(within_nnz, window + max_rows), window + 1).clip(max=num_rows)
        taken = _jump(block_ends.tolist(), row)
        boundaries.append(np.array(taken, np.int32))
        row = taken[-1]
    return np.concatenate(boundaries)


def _jump(block_ends: list[int], first_row: int) -> list[int]:
    """Follows block ends from `first_row` until they leave the window that starts there."""
    row, stop = first_row, first_row + len(block_ends)
    taken = []
    while row < stop:
        row = block_ends[row - first_row]
        taken.append(row)
    return taken


def _smallest_columns(pattern: Pattern, block_rows: Int32Array) -> Int32Array:
    first = pattern.row_offsets[block_rows]
    base = np.zeros(block_rows.size - 1, np.int32)
    filled = np.flatnonzero(np.diff(first))
    base[filled] = np.minimum.reduceat(pattern.col_indices, first[filled])
    return base
