"""One entry of A or of the dense operand changed: what the kernels of replay_kernels.cu are told (needs no device)."""

import ctypes
from dataclasses import dataclass
from typing import Any

from services.evaluator.device import Draw
from sparsesmith.operations.sums import LONG_ROW, ROUNDOFF, SINGLE_ROUNDOFFS, TOLERANCES
from sparsesmith_proto.message import ElementType

Number = int | ctypes.c_double


@dataclass(frozen=True)
class Made:
    """One change under a key."""

    number: int
    of_values: bool
    """Of a value of A; else of an entry of the dense operand."""
    key_low: int
    key_high: int


@dataclass(frozen=True, eq=False)
class Drawn:
    """A draw as changes are drawn from it: by what it holds, not by what was changed since."""

    row_offsets: Any
    col_indices: Any
    draw: Draw
    num_dense_cols: int
    element_type: ElementType

    @property
    def nnz(self) -> int:
        return int(self.col_indices.size)

    def arguments(self, made: Made) -> tuple[Number, ...]:
        """The first arguments of every kernel of a replay."""
        draw = self.draw
        arrays = (self.row_offsets, self.col_indices, draw.values, draw.dense, draw.magnitude)
        sizes = (int(self.row_offsets.size) - 1, self.nnz, self.num_dense_cols)
        key = (int(made.of_values), made.number, made.key_low, made.key_high)
        rounding = (ctypes.c_double(TOLERANCES[self.element_type]), ctypes.c_double(LONG_ROW))
        return (*(int(array.data.ptr) for array in arrays), *sizes, *key, *rounding)


@dataclass(frozen=True)
class Target:
    """Where a change is made: addresses of values in stored order and of the dense operand."""

    values: int
    dense: int
    sources: int = 0
    """Address of the CSR position of each slot; 0: CSR order."""
    num_slots: int = 0


def accuracy(element_type: ElementType, *, sees_single_products: bool) -> tuple[ctypes.c_double, ...]:
    """The structure of this name in draw_kernels.cu."""
    roundoff = ROUNDOFF[element_type]
    return (
        *map(ctypes.c_double, (TOLERANCES[element_type], LONG_ROW)),
        ctypes.c_double(roundoff if sees_single_products else -1.0),
        ctypes.c_double(SINGLE_ROUNDOFFS * roundoff),
    )
