"""The columns of A over its values as they are: where in CSR order the value of each nonzero of a column stands.

What multiplies with A^T in a fixed order reads the same values as what multiplies with A: new ones reach both.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sparsesmith.formats.csr import VALUES_IN_CSR_ORDER
from sparsesmith.formats.format import Argument, Format, Layout, Parameters, ParameterSpec
from sparsesmith.matrix.pattern import Pattern

_ARGUMENTS = (
    Argument("const int*", "col_offsets", "index", "first nonzero of each column, length num_cols + 1"),
    Argument("const int*", "row_indices", "index", "row of each nonzero, column by column, ascending, length nnz"),
    Argument("const int*", "places", "index", "place of its value among `values`, column by column, length nnz"),
    VALUES_IN_CSR_ORDER,
)


@dataclass(frozen=True)
class Csc(Format):
    name: str = "csc"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {}

    @property
    def has_padding(self) -> bool:
        return False

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        return _ARGUMENTS

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        columns, places = pattern.transposed
        indices = {
            "col_offsets": columns.row_offsets,
            "row_indices": columns.col_indices,
            "places": places.astype(np.int32, copy=False),
        }
        return Layout(sizes={}, indices=indices, value_sources=None, num_slots=pattern.nnz)

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        offsets, rows = (layout.indices[name].astype(np.int32, copy=False) for name in ("col_offsets", "row_indices"))
        rows_first, _ = Pattern(num_cols, num_rows, offsets, rows).transposed
        return rows_first
