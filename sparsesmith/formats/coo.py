"""Coordinates: a row and a column for each nonzero."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sparsesmith.formats.csr import VALUES_IN_CSR_ORDER, absolute_columns, col_indices_in_csr_order
from sparsesmith.formats.format import INDEX_WIDTH, Argument, Format, Layout, Parameters, ParameterSpec
from sparsesmith.matrix.pattern import Pattern


@dataclass(frozen=True)
class Coo(Format):
    name: str = "coo"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {"index": INDEX_WIDTH}

    @property
    def has_padding(self) -> bool:
        return False

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        rows = Argument("const int*", "row_indices", "index", "row of each nonzero, ascending, length nnz")
        return (rows, col_indices_in_csr_order(parameters), VALUES_IN_CSR_ORDER)

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        return Layout(
            sizes={},
            indices={
                "row_indices": pattern.row_indices(),
                "col_indices": absolute_columns(pattern, parameters, self.name),
            },
            value_sources=None,
            num_slots=pattern.nnz,
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        lengths = np.bincount(layout.indices["row_indices"].astype(np.int32, copy=False), minlength=num_rows)
        row_offsets = np.zeros(num_rows + 1, np.int32)
        np.cumsum(lengths, out=row_offsets[1:])
        return Pattern(num_rows, num_cols, row_offsets, layout.indices["col_indices"].astype(np.int32, copy=False))
