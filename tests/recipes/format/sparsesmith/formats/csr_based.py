"""CSR whose columns count from zero or from one."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sparsesmith.formats.csr import ROW_OFFSETS, VALUES_IN_CSR_ORDER
from sparsesmith.formats.format import Argument, Format, Layout, OneOf, Parameters, ParameterSpec
from sparsesmith.matrix.pattern import Pattern


@dataclass(frozen=True)
class CsrBased(Format):
    name: str = "csr_based"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {"base": OneOf("zero", ("zero", "one"))}

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        columns = Argument("const int*", "col_indices", "index", f"column of each nonzero, from {parameters['base']}")
        return (ROW_OFFSETS, columns, VALUES_IN_CSR_ORDER)

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        columns = pattern.col_indices + np.int32(parameters["base"] == "one")
        indices = {"row_offsets": pattern.row_offsets, "col_indices": columns}
        return Layout(sizes={}, indices=indices, value_sources=None, num_slots=pattern.nnz)

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        columns = layout.indices["col_indices"].astype(np.int32) - np.int32(parameters["base"] == "one")
        return Pattern(num_rows, num_cols, layout.indices["row_offsets"].astype(np.int32), columns)
