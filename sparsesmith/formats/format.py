"""What a storage format is: parameters, kernel arguments, a builder from CSR and its inverse.

A format splits into a **layout** (index arrays and sizes, built once for a pattern) and the **packing** of values into
it (a gather, done for every set of values). That is what lets one kernel serve any values.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from sparsesmith.errors import InvalidProgram
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices

ParameterValue = int | str
Parameters = Mapping[str, ParameterValue]
"""Complete: every parameter of the format, by name."""


@dataclass(frozen=True)
class IntegerRange:
    """A whole-number parameter."""

    default: int
    low: int
    high: int


@dataclass(frozen=True)
class OneOf:
    """A parameter with a closed set of values."""

    default: ParameterValue
    values: tuple[ParameterValue, ...]


@dataclass(frozen=True)
class NumberList:
    """Ascending whole numbers with commas between, such as `-1,0,1`; a text even where it is one number."""

    default: str
    low: int
    high: int
    most: int
    """Numbers in a list at most; at least one."""

    def is_legal(self, value: ParameterValue) -> bool:
        """Whether a value is a list as it is canonically written."""
        if not isinstance(value, str) or not _NUMBER_LIST.fullmatch(value):
            return False
        listed = numbers(value)
        ascending = all(left < right for left, right in pairwise(listed))
        return ascending and len(listed) <= self.most and self.low <= listed[0] and listed[-1] <= self.high

    @property
    def limit(self) -> str:
        return f"up to {self.most} ascending numbers from {self.low} to {self.high}, such as {self.default}"


def numbers(listed: str) -> tuple[int, ...]:
    """The numbers of a legal list."""
    return tuple(map(int, listed.split(",")))


_NUMBER_LIST = re.compile(r"(0|-?[1-9][0-9]{0,9})(,(0|-?[1-9][0-9]{0,9}))*", re.ASCII)

ParameterSpec = IntegerRange | OneOf | NumberList

Role = Literal["size", "index", "values", "scratch", "input", "inout", "output"]

WRITABLE_ROLES: tuple[Role, ...] = ("scratch", "inout", "output")
"""Of arguments that kernels may write to."""


@dataclass(frozen=True)
class Argument:
    """One argument of every kernel of a program. `T` in the C type stands for the element type."""

    c_type: str
    """`int`, `const int*`, `const unsigned short*`, `const unsigned char*`, `const T*`, `T*`."""
    name: str
    role: Role
    meaning: str
    """One sentence: contents, order and length."""


@dataclass(frozen=True)
class Layout:
    """A format built for one pattern, without values."""

    sizes: Mapping[str, int]
    """Each `size` argument by name; the names that launch expressions may use."""
    indices: Mapping[str, npt.NDArray[np.generic]]
    """Each `index` argument by name (int32, uint16 or uint8)."""
    value_sources: npt.NDArray[np.int32] | None
    """For each stored slot the position of its value in CSR order, -1 for padding. None: CSR order itself."""
    num_slots: int
    """Stored values, padding included."""
    scratch: Mapping[str, int] = field(default_factory=dict)
    """Elements of each `scratch` argument by name, per column of the dense operand (spmv: 1): device memory that the
    kernels of a program share, holding garbage at the start of every product."""
    saved_ms: float = 0.0
    """Time of a host's thread that building it takes, but for what other layouts of the pattern had done before."""

    def pack(self, values: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Values in CSR order, shape [nnz], to stored order, shape [num_slots]; padding is zero."""
        if self.value_sources is None:
            return values
        packed = np.take(values, np.maximum(self.value_sources, 0))
        packed[self.value_sources < 0] = 0
        return packed

    def unpack(self, packed: npt.NDArray[np.floating], nnz: int) -> npt.NDArray[np.floating]:
        """The inverse of pack."""
        if self.value_sources is None:
            return packed
        values = np.empty(nnz, packed.dtype)
        stored = self.value_sources >= 0
        values[self.value_sources[stored]] = packed[stored]
        return values

    def buffer_bytes(self, argument: Argument, element_bytes: int, num_dense_cols: int) -> int:
        """Device memory of one of the format's arrays."""
        match argument.role:
            case "values":
                return self.num_slots * element_bytes
            case "scratch":
                return self.scratch[argument.name] * num_dense_cols * element_bytes
            case _:
                return int(self.indices[argument.name].nbytes)

    def num_bytes(self, element_bytes: int, num_dense_cols: int = 1) -> int:
        """Device memory of the format: indices, values and scratch."""
        scratch = sum(self.scratch.values()) * num_dense_cols * element_bytes
        return sum(array.nbytes for array in self.indices.values()) + self.num_slots * element_bytes + scratch


@dataclass(frozen=True)
class GridOfSlots:
    """Slot k of row i lies at k * stride + i."""

    stride: str
    """`num_rows`, or the name of a size of the layout."""
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    """What the format's parameters must be for that."""


class Format(Protocol):
    """One storage format. Implementations are frozen dataclasses in a module of the format's name."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]: ...

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        """The format's own arguments, between the head (num_rows, num_cols, nnz) and the vectors."""
        ...

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        """Vectorised. Raises InvalidProgram where the pattern does not fit (too much padding, 16 bits too few)."""
        ...

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        """The inverse of build."""
        ...

    @property
    def has_padding(self) -> bool:
        """Whether some slots may hold no nonzero: a program must see that from their value."""
        return True

    @property
    def grid_of_slots(self) -> GridOfSlots | None:
        """Of formats whose rows can be coded as wholes (`values=rows`)."""
        return None


@dataclass(frozen=True)
class NoFormat:
    """What stands in a format's place where there is no matrix: nothing is stored. Implements Format."""

    name: str = "none"
    parameters: Mapping[str, ParameterSpec] = field(default_factory=dict)
    has_padding: bool = False
    grid_of_slots: GridOfSlots | None = None

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        return ()

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        """Raises TypeError: see EMPTY_LAYOUT."""
        raise TypeError("a task has no matrix to store")

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        """Raises TypeError."""
        raise TypeError("a task has no matrix to restore")


NO_FORMAT = NoFormat()

EMPTY_LAYOUT = Layout(sizes={}, indices={}, value_sources=None, num_slots=0)
"""Of a task."""

HEAD = (
    Argument("int", "num_rows", "size", "rows of A"),
    Argument("int", "num_cols", "size", "columns of A"),
    Argument("int", "nnz", "size", "nonzeros of A, padding not counted"),
)

VALUES = "values"

MAX_OFFSET = 2**31 - 1
"""Largest 32-bit integer: every offset and every size on the device."""

MAX_PADDING_RATIO = 16
"""A layout of more slots a nonzero than this (and over 2**20 slots) is refused: it cannot win and may not fit."""


def complete_parameters(format_: Format, given: Parameters) -> dict[str, ParameterValue]:
    """Given parameters with defaults filled in. Raises InvalidProgram for an unknown name or a value out of range."""
    for name in given:
        if name not in format_.parameters:
            known = ", ".join(format_.parameters) or "none"
            raise InvalidProgram(
                f"format {format_.name} has no parameter {name!r} (known: {known})", field=name, value=name, limit=known
            )
    return {
        name: _check(format_, name, spec, given.get(name, spec.default)) for name, spec in format_.parameters.items()
    }


def _check(format_: Format, name: str, spec: ParameterSpec, value: ParameterValue) -> ParameterValue:
    match spec:
        case IntegerRange():
            limit = f"{spec.low}..{spec.high}"
            legal = isinstance(value, int) and spec.low <= value <= spec.high
        case OneOf():
            limit = ", ".join(map(str, spec.values))
            legal = value in spec.values
        case NumberList():
            value = str(value)
            limit = spec.limit
            legal = spec.is_legal(value)
    if not legal:
        raise InvalidProgram(
            f"format {format_.name}: {name}={value} is not one of {limit}", field=name, value=value, limit=limit
        )
    return value


def has_too_many_slots(num_slots: int, nnz: int) -> bool:
    """Whether a layout would be mostly padding, or beyond 32-bit integers."""
    mostly_padding = num_slots > 2**20 and num_slots > MAX_PADDING_RATIO * nnz
    return mostly_padding or num_slots > MAX_OFFSET


def refuse_padding(format_name: str, num_slots: int, nnz: int) -> None:
    """Raises InvalidProgram for a layout that is mostly padding, before it is allocated."""
    if has_too_many_slots(num_slots, nnz):
        limit = min(MAX_PADDING_RATIO * nnz, MAX_OFFSET)
        raise InvalidProgram(
            f"format {format_name} would store {num_slots} slots for {nnz} nonzeros (at most {limit})",
            field="format",
            value=num_slots,
            limit=limit,
        )


def refuse_bookkeeping(format_name: str, what: str, number: int, nnz: int) -> None:
    """Raises InvalidProgram where what a format keeps for places, empty ones too, is more than nonzeros warrant."""
    if has_too_many_slots(number, nnz):
        raise InvalidProgram(
            f"format {format_name} would store {number} {what} for {nnz} nonzeros: it is for nearly dense matrices",
            field="format",
            value=number,
            limit=max(2**20, MAX_PADDING_RATIO * nnz),
        )


def refuse_overflow(format_name: str, what: str, value: int) -> None:
    """Raises InvalidProgram where a quantity that kernels compute in 32-bit integers would not fit."""
    if value > MAX_OFFSET:
        raise InvalidProgram(
            f"format {format_name}: {what} is {value}, beyond 32-bit integers (at most {MAX_OFFSET})",
            field="format",
            value=value,
            limit=MAX_OFFSET,
        )


def whole(parameters: Parameters, name: str) -> int:
    """A whole-number parameter of a complete set."""
    value = parameters[name]
    if not isinstance(value, int):
        raise InvalidProgram(f"{name}={value} is not a whole number", field=name, value=value, limit="a whole number")
    return value


INDEX_WIDTH = OneOf("i32", ("i32", "u16"))
"""The parameter `index` of formats whose column indices may be 16 bits wide."""

Narrow = Literal["u8", "u16"]
"""Width of column offsets."""

NarrowArray = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]

NARROW_REACH: Mapping[Narrow, int] = {"u8": 2**8, "u16": 2**16}


def index_type(parameters: Parameters) -> str:
    """C type of the column indices, or of their low 16 bits."""
    index = parameters["index"]
    if index == "i32":
        return "const int*"
    return "const unsigned char*" if index == "u8" else "const unsigned short*"


def narrowed(offsets: npt.NDArray[np.int32], width: Narrow) -> NarrowArray:
    """Offsets that are known to fit."""
    return offsets.astype(np.uint8) if width == "u8" else offsets.astype(np.uint16)


def narrow_columns(
    columns: npt.NDArray[np.int32], format_name: str, reach: str, index: ParameterValue = "u16"
) -> NarrowArray:
    """Column offsets as 8 or 16-bit numbers, as `index` asks.

    Raises InvalidProgram where one does not fit; `reach` says what they span.
    """
    width: Narrow = "u8" if index == "u8" else "u16"
    largest = int(columns.max(initial=0))
    if largest >= NARROW_REACH[width]:
        raise InvalidProgram(
            f"format {format_name}: index={index} needs {reach} within {NARROW_REACH[width]}, found {largest + 1}",
            field="index",
            value=largest + 1,
            limit=NARROW_REACH[width],
        )
    return narrowed(columns, width)


def pattern_of_slots(
    num_rows: int, num_cols: int, slot_rows: npt.NDArray[np.integer], slot_cols: npt.NDArray[np.integer], layout: Layout
) -> Pattern:
    """The pattern of a padded layout, from the row and the column of each slot; padding is left out."""
    assert layout.value_sources is not None
    stored = layout.value_sources >= 0
    return pattern_from_indices(num_rows, num_cols, slot_rows[stored], slot_cols[stored])
