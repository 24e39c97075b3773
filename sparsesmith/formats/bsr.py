"""Block compressed sparse rows: small dense blocks, one column index for each."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from sparsesmith.formats.building.lanes import padded_row_offsets
from sparsesmith.formats.format import (
    MAX_OFFSET,
    MAX_PADDING_RATIO,
    Argument,
    Format,
    IntegerRange,
    Layout,
    Parameters,
    ParameterSpec,
    pattern_of_slots,
    refuse_overflow,
    refuse_padding,
    whole,
)
from sparsesmith.matrix.pattern import Pattern


@dataclass(frozen=True)
class Bsr(Format):
    name: str = "bsr"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {"block_rows": IntegerRange(2, 1, 16), "block_cols": IntegerRange(2, 1, 16)}

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        shape = f"{parameters['block_rows']} x {parameters['block_cols']}"
        return (
            Argument("int", "num_block_rows", "size", f"rows of {shape} blocks: num_rows / block_rows, rounded up"),
            Argument(
                "const int*", "block_row_offsets", "index", "first block of each block row, length num_block_rows + 1"
            ),
            Argument(
                "const int*",
                "block_col_indices",
                "index",
                "block column of each block, ascending in a block row; its first column is block_cols times that",
            ),
            Argument(
                "const T*",
                "values",
                "values",
                f"blocks of {shape}, row-major; rows and columns beyond the matrix are padding: x must not be read, y "
                "not be written there",
            ),
        )

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        block_rows, block_cols = whole(parameters, "block_rows"), whole(parameters, "block_cols")
        num_block_rows = -(-pattern.num_rows // block_rows)
        num_block_cols = -(-pattern.num_cols // block_cols)
        refuse_overflow(self.name, "num_block_rows * block_rows", num_block_rows * block_rows)
        refuse_overflow(self.name, "padded num_cols", num_block_cols * block_cols)
        size = block_rows * block_cols
        if size > MAX_PADDING_RATIO or size * pattern.nnz > MAX_OFFSET:
            # Fewer slots are never refused, whatever the pattern.
            refuse_padding(self.name, size * count_blocks(pattern, block_rows, block_cols), pattern.nnz)
        # SciPy moves the numbers of the nonzeros, from 1, as if they were values.
        numbers = np.arange(1, pattern.nnz + 1, dtype=np.int32)
        numbered = scipy.sparse.csr_matrix(
            (numbers, pattern.col_indices, padded_row_offsets(pattern, block_rows)),
            shape=(num_block_rows * block_rows, num_block_cols * block_cols),
        )
        blocks = numbered.tobsr((block_rows, block_cols))
        blocks.sort_indices()
        value_sources = blocks.data.reshape(-1)
        value_sources -= 1
        return Layout(
            sizes={"num_block_rows": num_block_rows},
            indices={
                "block_row_offsets": blocks.indptr.astype(np.int32, copy=False),
                "block_col_indices": blocks.indices.astype(np.int32, copy=False),
            },
            value_sources=value_sources,
            num_slots=value_sources.size,
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        block_rows, block_cols = whole(parameters, "block_rows"), whole(parameters, "block_cols")
        blocks_per_row = np.diff(layout.indices["block_row_offsets"].astype(np.int32, copy=False))
        first_rows = np.repeat(np.arange(blocks_per_row.size, dtype=np.int64) * block_rows, blocks_per_row)
        first_cols = layout.indices["block_col_indices"].astype(np.int64) * block_cols
        in_block = np.arange(block_rows * block_cols, dtype=np.int64)
        slot_rows = (first_rows[:, None] + in_block // block_cols).reshape(-1)
        slot_cols = (first_cols[:, None] + in_block % block_cols).reshape(-1)
        return pattern_of_slots(num_rows, num_cols, slot_rows, slot_cols, layout)


def count_blocks(pattern: Pattern, block_rows: int, block_cols: int) -> int:
    """Aligned blocks with a nonzero."""
    # A column for each block column: the product with it gathers a block row's nonzeros by block, each counted once.
    num_block_cols = -(-pattern.num_cols // block_cols)
    block_of_column = np.arange(pattern.num_cols, dtype=np.int32) // block_cols
    gather = scipy.sparse.csr_matrix(
        (np.ones(pattern.num_cols, np.bool_), block_of_column, np.arange(pattern.num_cols + 1, dtype=np.int32)),
        shape=(pattern.num_cols, num_block_cols),
    )
    offsets = padded_row_offsets(pattern, block_rows)[::block_rows]
    rows = scipy.sparse.csr_matrix(
        (np.ones(pattern.nnz, np.bool_), pattern.col_indices, offsets), shape=(offsets.size - 1, pattern.num_cols)
    )
    return int((rows @ gather).nnz)
