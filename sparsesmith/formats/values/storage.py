"""How a program wants the values stored where the request fixes them: smaller, and exactly the same numbers.

//@ values dictionary code=u8     a code for each slot, the distinct values in a table (any format)
//@ values rows code=u8           a code for each row, the distinct rows in a table (dia, ell)
//@ values constant               every nonzero has the same value (any format)
//@ values float32                float64 values that are float32 numbers (any format)
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.format import Argument, Layout

Code = Literal["u8", "u16"]
Array = npt.NDArray[Any]

MAX_DISTINCT: dict[str, int] = {"u8": 2**8, "u16": 2**16}

_CODE_TYPES: dict[str, tuple[str, type[np.unsignedinteger[Any]]]] = {
    "u8": ("const unsigned char*", np.uint8),
    "u16": ("const unsigned short*", np.uint16),
}
_SLOTS_AT_A_TIME = 1 << 18
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Dictionary:
    """A code for each slot into a table of the distinct values."""

    code: Code

    def __str__(self) -> str:
        return f"dictionary code={self.code}"


@dataclass(frozen=True)
class RowDictionary:
    """A code for each row into a table of the distinct rows."""

    code: Code

    def __str__(self) -> str:
        return f"rows code={self.code}"


@dataclass(frozen=True)
class Constant:
    """One value for all nonzeros; padding is not marked."""

    def __str__(self) -> str:
        return "constant"


@dataclass(frozen=True)
class Float32:
    """float64 values that are float32 numbers, stored as such."""

    def __str__(self) -> str:
        return "float32"


ValueStorage = Dictionary | RowDictionary | Constant | Float32

VALUE_STORAGES: Mapping[str, ValueStorage] = {
    str(storage): storage
    for storage in (
        Dictionary("u8"),
        Dictionary("u16"),
        RowDictionary("u8"),
        RowDictionary("u16"),
        Constant(),
        Float32(),
    )
}
"""Every value storage by what a `//@ values` line says."""


def stored_arguments(storage: ValueStorage, plain: Argument) -> tuple[Argument, ...]:
    """What stands in the place of the format's argument `values`."""
    match storage:
        case Dictionary(code=code):
            return (
                Argument("int", "num_distinct", "size", "distinct values, the zero of padding among them"),
                Argument(
                    _CODE_TYPES[code][0], "value_codes", "index", f"code of each slot; slots as in: {plain.meaning}"
                ),
                Argument("const T*", "dictionary", "index", "the distinct values, ascending, length num_distinct"),
            )
        case RowDictionary(code=code):
            return (
                Argument("int", "num_distinct", "size", "distinct rows"),
                Argument(_CODE_TYPES[code][0], "row_codes", "index", "code of each row, length num_rows"),
                Argument(
                    "const T*",
                    "row_values",
                    "index",
                    "value of slot k (dia: of diagonal k) of the rows with code c at c * slots + k, zero where a row "
                    "has no nonzero",
                ),
            )
        case Constant():
            return (
                Argument(
                    "const T*",
                    "constant_value",
                    "index",
                    "the value of every nonzero, length 1; padding slots are not marked: their columns repeat",
                ),
            )
        case Float32():
            return (Argument("const float*", "values", "index", plain.meaning),)


@dataclass(frozen=True)
class SlotGrid:
    """Slots of row i at k * stride + i."""

    num_rows: int
    stride: int


def stored_layout(storage: ValueStorage, layout: Layout, values: Array, grid: SlotGrid | None) -> Layout:
    """The layout with the values in it, shape [nnz] in CSR order. `grid`: of formats that have one.

    Raises InvalidProgram for values that cannot be stored in that way.
    """
    sizes, arrays = _ENCODERS[type(storage)](storage, layout, values, grid)
    return Layout(
        sizes={**layout.sizes, **sizes},
        indices={**layout.indices, **arrays},
        value_sources=None,
        num_slots=0,
        scratch=layout.scratch,
        saved_ms=layout.saved_ms,
    )


def unpacked(storage: ValueStorage, layout: Layout) -> Array | None:
    """Every slot's value of a layout that `stored_layout` gave; None for `constant`, which does not mark padding."""
    match storage:
        case Dictionary():
            slots: Array = layout.indices["dictionary"][layout.indices["value_codes"]]
            return slots
        case RowDictionary():
            rows = layout.indices["row_values"].reshape(layout.sizes["num_distinct"], -1)
            return np.ascontiguousarray(rows[layout.indices["row_codes"]].T)
        case Constant():
            return None
        case Float32():
            return layout.indices["values"].astype(np.float64)


def distinct(words: Array, limit: int) -> Array | None:
    """The distinct entries, ascending; None where there are more than `limit`."""
    known = np.unique(words[:1])
    for piece in _pieces(words):
        places = np.minimum(np.searchsorted(known, piece), known.size - 1)
        unknown = piece[known[places] != piece]
        if unknown.size:
            known = np.union1d(known, unknown)
            if known.size > limit:
                return None
    return known


def _pieces(words: Array) -> Iterator[Array]:
    for start in range(0, words.size, _SLOTS_AT_A_TIME):
        yield words[start : start + _SLOTS_AT_A_TIME]


Encoded = tuple[dict[str, int], dict[str, Array]]


def _encode_dictionary(storage: Any, layout: Layout, values: Array, grid: SlotGrid | None) -> Encoded:
    packed = layout.pack(values)
    table = _distinct_or_refuse(packed, storage, "values (padding counts as zero)")
    codes = _codes(packed, table, _CODE_TYPES[storage.code][1])
    return {"num_distinct": table.size}, {"value_codes": codes, "dictionary": table}


def _encode_rows(storage: Any, layout: Layout, values: Array, grid: SlotGrid | None) -> Encoded:
    assert grid is not None
    slots = layout.pack(values).reshape(-1, grid.stride)[:, : grid.num_rows]
    hashes = _hash_rows(slots)
    table = _distinct_or_refuse(hashes, storage, "rows")
    codes = _codes(hashes, table, np.uint16)
    first = np.zeros(table.size, np.int64)
    first[codes[::-1]] = np.arange(codes.size - 1, -1, -1)
    rows = slots[:, first].T
    order = np.lexsort(rows.T[::-1])
    rank = np.empty(order.size, np.uint16)
    rank[order] = np.arange(order.size)
    codes, rows = rank[codes], np.ascontiguousarray(rows[order])
    if any(not np.array_equal(rows[codes, slot], slots[slot]) for slot in range(slots.shape[0])):
        raise InvalidProgram("values rows: two rows cannot be told apart", field="values", value="rows")
    arrays = {"row_codes": codes.astype(_CODE_TYPES[storage.code][1]), "row_values": rows.reshape(-1)}
    return {"num_distinct": order.size}, arrays


def _encode_constant(storage: Any, layout: Layout, values: Array, grid: SlotGrid | None) -> Encoded:
    if distinct(values, 1) is None:
        other = values[np.flatnonzero(values != values[0])[0]]
        raise InvalidProgram(
            f"values constant: the matrix has the values {values[0]} and {other}", field="values", value=other, limit=1
        )
    return {}, {"constant_value": values[:1].copy()}


def _encode_float32(storage: Any, layout: Layout, values: Array, grid: SlotGrid | None) -> Encoded:
    if values.dtype != np.float64:
        raise InvalidProgram(
            f"values float32: stores float64 values, the element type is {values.dtype}",
            field="values",
            value=str(values.dtype),
            limit="float64",
        )
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    lost = np.flatnonzero(narrow != values)
    if lost.size:
        raise InvalidProgram(
            f"values float32: {values[lost[0]]!r} is not a float32 number ({lost.size} of {values.size} are not)",
            field="values",
            value=values[lost[0]],
            limit="float32",
        )
    return {}, {"values": layout.pack(narrow)}


_ENCODERS: dict[type, Callable[[Any, Layout, Array, SlotGrid | None], Encoded]] = {
    Dictionary: _encode_dictionary,
    RowDictionary: _encode_rows,
    Constant: _encode_constant,
    Float32: _encode_float32,
}


def _distinct_or_refuse(words: Array, storage: Dictionary | RowDictionary, what: str) -> Array:
    limit = MAX_DISTINCT[storage.code]
    table = distinct(words, limit)
    if table is None:
        raise InvalidProgram(
            f"values {storage}: the matrix has more than {limit} distinct {what}",
            field="values",
            value=f"more than {limit}",
            limit=limit,
        )
    return table


def _codes(words: Array, table: Array, dtype: type[np.unsignedinteger[Any]]) -> Array:
    """The place of each word in a table that has it."""
    codes = np.empty(words.size, dtype)
    for number, piece in enumerate(_pieces(words)):
        start = number * _SLOTS_AT_A_TIME
        codes[start : start + piece.size] = np.searchsorted(table, piece)
    return codes


def _hash_rows(slots: Array) -> npt.NDArray[np.uint64]:
    """A 64-bit hash over the bits of each column of the grid."""
    bits = slots.view(f"u{slots.dtype.itemsize}")
    hashes = np.zeros(slots.shape[1], np.uint64)
    for slot in bits:
        hashes ^= slot
        hashes *= _MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
    return hashes
