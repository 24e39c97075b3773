"""Diagonals: no column indices at all, one stored value for each row and each diagonal in use."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sparsesmith.domain.formats.format import (
    Argument,
    Layout,
    Parameters,
    ParameterSpec,
    pattern_of_slots,
    refuse_padding,
)
from sparsesmith.domain.pattern import Pattern


@dataclass(frozen=True)
class Dia:
    name: str = "dia"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {}

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        return (
            Argument("int", "num_diagonals", "size", "diagonals with a nonzero"),
            Argument(
                "const int*",
                "diagonal_offsets",
                "index",
                "column minus row of each diagonal, ascending, length num_diagonals",
            ),
            Argument(
                "const T*",
                "values",
                "values",
                "value of diagonal d in row i at d * num_rows + i, zero where there is no nonzero; columns outside "
                "0 to num_cols - 1 are padding: x must not be read there",
            ),
        )

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        rows = pattern.row_indices()
        # Shifted to count from 0: column - row + num_rows - 1.
        diagonals = pattern.col_indices.astype(np.int64) - rows
        diagonals += pattern.num_rows - 1
        in_use = np.zeros(pattern.num_rows + pattern.num_cols - 1, np.bool_)
        in_use[diagonals] = True
        shifted_offsets = np.flatnonzero(in_use)
        num_slots = shifted_offsets.size * pattern.num_rows
        refuse_padding(self.name, num_slots, pattern.nnz)
        rank = np.cumsum(in_use, dtype=np.int64) - 1
        slots = rank[diagonals] * pattern.num_rows + rows
        value_sources = np.full(num_slots, -1, np.int32)
        value_sources[slots] = np.arange(pattern.nnz, dtype=np.int32)
        return Layout(
            sizes={"num_diagonals": shifted_offsets.size},
            indices={"diagonal_offsets": (shifted_offsets - (pattern.num_rows - 1)).astype(np.int32)},
            value_sources=value_sources,
            num_slots=num_slots,
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        offsets = layout.indices["diagonal_offsets"].astype(np.int64)
        slot_rows = np.tile(np.arange(num_rows, dtype=np.int64), offsets.size)
        return pattern_of_slots(num_rows, num_cols, slot_rows, slot_rows + np.repeat(offsets, num_rows), layout)
