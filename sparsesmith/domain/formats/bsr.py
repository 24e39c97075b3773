"""Block compressed sparse rows: small dense blocks, one column index for each."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sparsesmith.domain.formats.format import (
    Argument,
    IntegerRange,
    Layout,
    Parameters,
    ParameterSpec,
    pattern_of_slots,
    refuse_overflow,
    refuse_padding,
    whole,
)
from sparsesmith.domain.pattern import Pattern


@dataclass(frozen=True)
class Bsr:
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
        rows = pattern.row_indices()
        keys = (rows // block_rows).astype(np.int64) * num_block_cols + pattern.col_indices // block_cols
        # The rows of a block row are sorted runs, which the stable sort merges.
        order = np.argsort(keys, kind="stable").astype(np.int32)
        keys = keys[order]
        starts_block = np.empty(keys.size, np.bool_)
        starts_block[0] = True
        np.not_equal(keys[1:], keys[:-1], out=starts_block[1:])
        blocks = keys[starts_block]
        num_slots = blocks.size * block_rows * block_cols
        refuse_padding(self.name, num_slots, pattern.nnz)
        slots = np.cumsum(starts_block, dtype=np.int32) - 1
        slots *= block_rows * block_cols
        slots += (rows % block_rows * block_cols + pattern.col_indices % block_cols)[order]
        value_sources = np.full(num_slots, -1, np.int32)
        value_sources[slots] = order
        block_row_offsets = np.searchsorted(blocks, np.arange(num_block_rows + 1, dtype=np.int64) * num_block_cols)
        return Layout(
            sizes={"num_block_rows": num_block_rows},
            indices={
                "block_row_offsets": block_row_offsets.astype(np.int32),
                "block_col_indices": (blocks % num_block_cols).astype(np.int32),
            },
            value_sources=value_sources,
            num_slots=num_slots,
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
