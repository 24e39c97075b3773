"""ELLPACK: every row padded to the longest, stored column by column so that neighbouring threads read neighbours."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sparsesmith.formats.building.lanes import Lanes, padded_row_offsets
from sparsesmith.formats.format import (
    Argument,
    Format,
    GridOfSlots,
    Layout,
    Parameters,
    ParameterSpec,
    pattern_of_slots,
    refuse_overflow,
    refuse_padding,
)
from sparsesmith.matrix.pattern import Pattern

ROW_ALIGNMENT = 32
"""The stride is a multiple of a warp: slot 0 of every column of slots is 128-byte aligned for 4-byte elements."""


@dataclass(frozen=True)
class Ell(Format):
    name: str = "ell"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {}

    @property
    def grid_of_slots(self) -> GridOfSlots:
        return GridOfSlots("stride")

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        return (
            Argument("int", "width", "size", "slots of a row: length of the longest row"),
            Argument("int", "stride", "size", "num_rows rounded up to a multiple of 32"),
            Argument(
                "const int*",
                "col_indices",
                "index",
                "column of slot k of row i at k * stride + i, length width * stride; padding repeats the row's last "
                "column, 0 in an empty row",
            ),
            Argument("const T*", "values", "values", "value of slot k of row i at k * stride + i; padding is zero"),
        )

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        width = int(pattern.row_lengths.max())
        stride = -(-pattern.num_rows // ROW_ALIGNMENT) * ROW_ALIGNMENT
        refuse_overflow(self.name, "stride", stride)
        refuse_padding(self.name, width * stride, pattern.nnz)
        offsets = padded_row_offsets(pattern, ROW_ALIGNMENT)[None]
        first, past = offsets[:, :-1], offsets[:, 1:]
        lanes = Lanes(first, past, first == past, np.array([width]), np.zeros(1, np.int32))
        columns, value_sources = lanes.filled(pattern)
        return Layout(
            sizes={"width": width, "stride": stride},
            indices={"col_indices": columns},
            value_sources=value_sources,
            num_slots=columns.size,
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        slot_rows = np.tile(np.arange(layout.sizes["stride"], dtype=np.int32), layout.sizes["width"])
        columns = layout.indices["col_indices"].astype(np.int32, copy=False)
        return pattern_of_slots(num_rows, num_cols, slot_rows, columns, layout)
