"""Compressed sparse rows: the pattern's own order."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.formats.format import (
    Argument,
    Format,
    Layout,
    NarrowArray,
    OneOf,
    Parameters,
    ParameterSpec,
    index_type,
    narrow_columns,
)
from sparsesmith.matrix.pattern import Int32Array, Pattern

ROW_OFFSETS = Argument(
    "const int*", "row_offsets", "index", "first nonzero of each row, length num_rows + 1; the last entry is nnz"
)
ROW_COL_BASE = Argument(
    "const int*", "row_col_base", "index", "smallest column of each row (0 if empty), length num_rows"
)
FROM_ROW = ("u8", "u16_row")
"""Values of `index` whose columns count from their row's smallest."""
VALUES_IN_CSR_ORDER = Argument("const T*", "values", "values", "value of each nonzero in CSR order, length nnz")


def col_indices_in_csr_order(parameters: Parameters, meaning: str = "column of each nonzero") -> Argument:
    """The argument `col_indices` of formats that keep CSR's order."""
    return Argument(index_type(parameters), "col_indices", "index", f"{meaning} in CSR order, length nnz")


@dataclass(frozen=True)
class Csr(Format):
    name: str = "csr"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {"index": OneOf("i32", ("i32", "u16", "u8", "u16_row"))}

    @property
    def has_padding(self) -> bool:
        return False

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        if parameters["index"] not in FROM_ROW:
            return (ROW_OFFSETS, col_indices_in_csr_order(parameters), VALUES_IN_CSR_ORDER)
        columns = col_indices_in_csr_order(parameters, "column of each nonzero minus its row's row_col_base")
        return (ROW_OFFSETS, ROW_COL_BASE, columns, VALUES_IN_CSR_ORDER)

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        indices: dict[str, npt.NDArray[np.generic]] = {"row_offsets": pattern.row_offsets}
        if parameters["index"] in FROM_ROW:
            base = smallest_column_of_each_row(pattern)
            offsets = pattern.col_indices - np.repeat(base, pattern.row_lengths)
            indices["row_col_base"] = base
            indices["col_indices"] = narrow_columns(offsets, self.name, "the columns of each row", parameters["index"])
        else:
            indices["col_indices"] = absolute_columns(pattern, parameters, self.name)
        return Layout(sizes={}, indices=indices, value_sources=None, num_slots=pattern.nnz)

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        row_offsets = layout.indices["row_offsets"].astype(np.int32, copy=False)
        columns = layout.indices["col_indices"].astype(np.int32, copy=False)
        if parameters["index"] in FROM_ROW:
            base = layout.indices["row_col_base"].astype(np.int32, copy=False)
            columns = columns + np.repeat(base, np.diff(row_offsets))
        return Pattern(num_rows, num_cols, row_offsets, columns)


def smallest_column_of_each_row(pattern: Pattern) -> Int32Array:
    """The first column of each row, 0 in an empty one, shape [num_rows]."""
    first = pattern.col_indices[np.minimum(pattern.row_offsets[:-1], pattern.nnz - 1)]
    return np.where(pattern.row_lengths > 0, first, np.int32(0))


def absolute_columns(pattern: Pattern, parameters: Parameters, format_name: str) -> Int32Array | NarrowArray:
    """Column indices in CSR order at the width that `index` asks for.

    Raises InvalidProgram for index=u16 and more than 65536 columns.
    """
    if parameters["index"] == "i32":
        return pattern.col_indices
    return narrow_columns(pattern.col_indices, format_name, "the columns in use")
