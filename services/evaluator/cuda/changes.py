"""One entry of an input changed: where programs have it, and of A or the dense operand of a product what the kernels of
replay_kernels.cu are told (needs no device)."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from services.evaluator.device import Draw
from sparsesmith.elements import ELEMENTS
from sparsesmith.operations.sums import LONG_ROW, ROUNDOFF, SINGLE_ROUNDOFFS, TOLERANCES, stored_rounding
from sparsesmith.program.binding import BoundProgram
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
        rounding = (TOLERANCES[self.element_type], LONG_ROW, *stored_rounding(self.element_type))
        return (*(int(array.data.ptr) for array in arrays), *sizes, *key, *map(ctypes.c_double, rounding))


@dataclass(frozen=True)
class Target:
    """Where a change is made: addresses of values in stored order and of the dense operand."""

    values: int
    dense: int
    sources: int = 0
    """Address of the CSR position of each slot; 0: CSR order."""
    num_slots: int = 0


@dataclass(frozen=True)
class Place:
    """Where an entry is stored."""

    buffer: str
    offset: int
    """In bytes."""


def at_the_start(name: str) -> str:
    """Of the buffer that keeps what an operand is before it is changed in place."""
    return f"{name} at the start"


Sources = npt.NDArray[np.int32] | None
"""See `Layout.value_sources`."""


def places_of(bound: BoundProgram, sources_of: Callable[[], Sources], operand: str, index: int) -> list[Place]:
    """Where a program has an entry of an input, row-major: of the matrix's values (VALUES, in CSR order, where no
    operand has that name) wherever the format stores it, of what is changed in place where it is at the start.

    `sources_of`: of the format, asked for where they are needed.
    """
    given = next((buffer for buffer in bound.with_role("input", "inout") if buffer.name == operand), None)
    if given is not None:
        name = at_the_start(operand) if given.role == "inout" else operand
        return [Place(name, index * np.dtype(given.dtype).itemsize)]
    sources = sources_of()
    slots = [index] if sources is None else np.flatnonzero(sources == index).tolist()
    width = ELEMENTS[bound.element_type].num_bytes
    return [Place(stored.name, slot * width) for stored in bound.with_role("values") for slot in slots]


def accuracy(element_type: ElementType, *, sees_single_products: bool) -> tuple[ctypes.c_double, ...]:
    """The structure of this name in draw_kernels.cu."""
    roundoff = ROUNDOFF[element_type]
    is_summed_as_stored = ELEMENTS[element_type].sums == element_type
    numbers = (
        TOLERANCES[element_type],
        LONG_ROW,
        roundoff if sees_single_products and is_summed_as_stored else -1.0,
        SINGLE_ROUNDOFFS * roundoff,
        *stored_rounding(element_type),
    )
    return tuple(map(ctypes.c_double, numbers))
