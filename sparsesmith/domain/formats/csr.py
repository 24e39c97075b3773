"""Compressed sparse rows: the pattern's own order."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.domain.formats.format import (
    INDEX_WIDTH,
    Argument,
    Layout,
    Parameters,
    ParameterSpec,
    index_type,
    narrow_columns,
)
from sparsesmith.domain.pattern import Pattern

ROW_OFFSETS = Argument(
    "const int*", "row_offsets", "index", "first nonzero of each row, length num_rows + 1; the last entry is nnz"
)
VALUES_IN_CSR_ORDER = Argument("const T*", "values", "values", "value of each nonzero in CSR order, length nnz")


def col_indices_in_csr_order(parameters: Parameters, meaning: str = "column of each nonzero") -> Argument:
    """The argument `col_indices` of formats that keep CSR's order."""
    return Argument(index_type(parameters), "col_indices", "index", f"{meaning} in CSR order, length nnz")


@dataclass(frozen=True)
class Csr:
    name: str = "csr"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {"index": INDEX_WIDTH}

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        return (ROW_OFFSETS, col_indices_in_csr_order(parameters), VALUES_IN_CSR_ORDER)

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        return Layout(
            sizes={},
            indices={
                "row_offsets": pattern.row_offsets,
                "col_indices": absolute_columns(pattern, parameters, self.name),
            },
            value_sources=None,
            num_slots=pattern.nnz,
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        return Pattern(
            num_rows,
            num_cols,
            layout.indices["row_offsets"].astype(np.int32, copy=False),
            layout.indices["col_indices"].astype(np.int32, copy=False),
        )


def absolute_columns(
    pattern: Pattern, parameters: Parameters, format_name: str
) -> npt.NDArray[np.int32] | npt.NDArray[np.uint16]:
    """Column indices in CSR order at the width that `index` asks for.

    Raises InvalidProgram for index=u16 and more than 65536 columns.
    """
    if parameters["index"] == "i32":
        return pattern.col_indices
    return narrow_columns(pattern.col_indices, format_name, "the columns in use")
