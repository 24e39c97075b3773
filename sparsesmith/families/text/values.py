"""How a program reads the values: as they are, or through what a compression has put in their place.

A family names the places where it reads values (`$value(j)`, `$value_at(j)`, `vector`); all forms of a program are
written from one template.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sparsesmith.formats.values.storage import Code, Constant, Dictionary, Float32, RowDictionary, ValueStorage

Table = Literal["cached", "shared"]

_SHORT_CODES: Mapping[Code, str] = {"u8": "uchar", "u16": "ushort"}
_SHARED_ENTRIES = 256


@dataclass(frozen=True)
class Compression:
    """What to do with the values of a program."""

    storage: ValueStorage
    table: Table = "cached"
    """Where a dictionary is read: through the caches, or from a copy in shared memory (codes of 8 bits)."""

    def __str__(self) -> str:
        return f"{self.storage} {self.table}" if isinstance(self.storage, Dictionary) else str(self.storage)

    @property
    def dictionary(self) -> str:
        """The name of the table that codes are looked up in."""
        return "table" if self.table == "shared" else "dictionary"


def one(compression: Compression | None, load: str, index: str) -> str:
    """A read of one value. `load`: the intrinsic."""
    match compression and compression.storage:
        case Dictionary() if compression:
            return f"{compression.dictionary}[{load}(value_codes + {index})]"
        case Constant():
            return "constant_value[0]"
        case _:
            return f"{load}(values + {index})"


def subscript(compression: Compression | None, index: str) -> str:
    """A read of one value by a plain subscript."""
    match compression and compression.storage:
        case Dictionary() if compression:
            return f"{compression.dictionary}[value_codes[{index}]]"
        case Constant():
            return "constant_value[0]"
        case _:
            return f"values[{index}]"


def vector(compression: Compression | None, load: str, c_type: str, width: int, index: str) -> str:
    """A read of `width` > 1 neighbouring values as a vector."""
    match compression and compression.storage:
        case Dictionary(code=code) if compression:
            codes = f"{_SHORT_CODES[code]}{width}"
            return f"decoded({load}((const {codes}*)(value_codes + {index})), {compression.dictionary})"
        case Constant():
            return f"make_{c_type}{width}({', '.join(['constant_value[0]'] * width)})"
        case Float32():
            return f"widened({load}((const float{width}*)(values + {index})))"
        case _:
            return f"{load}((const {c_type}{width}*)(values + {index}))"


def vector_function(compression: Compression | None, c_type: str, width: int) -> str:
    """The device function that `vector` calls; none where values are read as they are."""
    match compression and compression.storage:
        case Dictionary(code=code) if width > 1:
            arguments = f"decoded({_SHORT_CODES[code]}{width} codes, const {c_type}* table)"
            entries = [f"table[codes.{field}]" for field in "xyzw"[:width]]
        case Float32() if width > 1:
            arguments, entries = f"widened(float{width} narrow)", [f"narrow.{field}" for field in "xyzw"[:width]]
        case _:
            return ""
    return (
        f"__device__ __forceinline__ {c_type}{width} {arguments} "
        f"{{ return make_{c_type}{width}({', '.join(entries)}); }}"
    )


def shared_table(compression: Compression | None, c_type: str) -> str:
    """What a kernel that reads values begins with: a copy of the dictionary in shared memory, if that is asked for."""
    if compression is None or not isinstance(compression.storage, Dictionary) or compression.table != "shared":
        return ""
    return (
        f"__shared__ {c_type} table[{_SHARED_ENTRIES}];\n"
        "for (int i = threadIdx.x; i < num_distinct; i += blockDim.x) table[i] = dictionary[i];\n"
        "__syncthreads();\n"
    )


def row_dictionary(code: str) -> Compression:
    """Codes for whole rows: the program reads `row_codes` and `row_values`."""
    return Compression(RowDictionary("u8" if code == "u8" else "u16"))
