"""Programs of the general families rewritten for compressed values: only the reads of `values` change."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sparsesmith.formats.values.storage import Code, Constant, Dictionary, Float32, RowDictionary, ValueStorage

Table = Literal["cached", "shared"]

UNPADDED = ("csr", "csr_rowblocks", "csr_merge", "coo")
"""Formats that store nonzeros only."""

_FORMAT = re.compile(r"^//@ format (\w+)[^\n]*\n", re.MULTILINE)
_ARGUMENT = re.compile(r"const (float|double)\* __restrict__ values\b")
_KERNEL = re.compile(r'^extern "C" __global__[^\n]*\{\n', re.MULTILINE)
_READ = re.compile(r"__(ldcs|ldg)\(values \+ |\bvalues\[")
_VECTOR_READ = re.compile(r"__(ldcs|ldg)\(\(const (float|double)([24])\*\)\(values \+ ")
_SIDE_EFFECT = re.compile(r"\bvalues\b[^;]*?(\+\+|--)[^;]*?\]|\(values \+[^;)]*(\+\+|--)")
"""A read that also counts on: it cannot be left out."""
_ALIAS = re.compile(r"const (?:float|double)\* \w+ =[^;]*\bvalues\b")
"""A pointer of its own into the values: its reads are not seen."""
_CODE_TYPES: Mapping[str, str] = {"u8": "unsigned char", "u16": "unsigned short"}
_SHORT_CODE_TYPES: Mapping[str, str] = {"u8": "uchar", "u16": "ushort"}
_SHARED_ENTRIES = 256


@dataclass(frozen=True)
class Compression:
    """What to do with the values of a program."""

    storage: Dictionary | Constant | Float32
    table: Table = "cached"
    """Where a dictionary is read: through the caches, or from a copy in shared memory (codes of 8 bits)."""

    def __str__(self) -> str:
        return f"{self.storage} {self.table}" if isinstance(self.storage, Dictionary) else str(self.storage)


def compressed_program(text: str, compression: Compression) -> str | None:
    """The program with its values compressed; None where it cannot be rewritten."""
    found = _FORMAT.search(text)
    element = _ARGUMENT.search(text)
    if found is None or element is None or _ALIAS.search(text):
        return None
    match compression.storage:
        case Constant():
            if found[1] not in UNPADDED or _SIDE_EFFECT.search(text):
                return None
            changed = _with_vector_reads(text, _Constants())
            changed = _with_reads(changed, "constant_value[0]", None)
            arguments = f"const {element[1]}* __restrict__ constant_value"
        case Float32():
            changed = _with_vector_reads(text, _Narrow())
            if element[1] != "double" or re.search(r"double\d?\*\)\s*\(?values\b", changed):
                return None
            arguments = "const float* __restrict__ values"
        case Dictionary(code=code):
            shared = compression.table == "shared"
            table = "table" if shared else "dictionary"
            changed = _with_reads(_with_vector_reads(text, _Codes(code, table)), "", table)
            if shared:
                changed = _with_tables(changed, element[1])
            arguments = (
                f"int num_distinct, const {_CODE_TYPES[code]}* __restrict__ value_codes, "
                f"const {element[1]}* __restrict__ dictionary"
            )
    changed = _stored(changed, compression.storage, arguments)
    left = re.search(r"\bvalues\b", changed.replace(f"//@ values {compression.storage}\n", "", 1))
    return None if left and not isinstance(compression.storage, Float32) else changed


def with_row_dictionary(text: str, code: Code) -> str:
    """A program that reads `row_codes` and `row_values`, with the head that declares them."""
    element = _ARGUMENT.search(text)
    assert element is not None
    arguments = (
        f"int num_distinct, const {_CODE_TYPES[code]}* __restrict__ row_codes, "
        f"const {element[1]}* __restrict__ row_values"
    )
    return _stored(text, RowDictionary(code), arguments)


def with_constant(text: str) -> str:
    """A program that reads `constant_value`, with the head that declares it."""
    return _stored(text, Constant(), r"const \1* __restrict__ constant_value")


def _stored(text: str, storage: ValueStorage, arguments: str) -> str:
    """Other arguments in the place of `values`, and the directive that asks for them."""
    changed = _ARGUMENT.sub(arguments, text)
    return _FORMAT.sub(lambda line: f"{line[0]}//@ values {storage}\n", changed, count=1)


@dataclass(frozen=True)
class _Codes:
    """Reads of neighbouring values as codes into a table."""

    code: Code
    table: str

    def read(self, load: str, element: str, width: int, address: str) -> str:
        codes = f"{_SHORT_CODE_TYPES[self.code]}{width}"
        return f"decoded(__{load}((const {codes}*)(value_codes + {address})), {self.table})"

    def function(self, element: str, width: int) -> str:
        looked_up = ", ".join(f"table[codes.{field}]" for field in "xyzw"[:width])
        codes = f"{_SHORT_CODE_TYPES[self.code]}{width}"
        return (
            f"__device__ __forceinline__ {element}{width} decoded({codes} codes, const {element}* table) "
            f"{{ return make_{element}{width}({looked_up}); }}\n"
        )


@dataclass(frozen=True)
class _Narrow:
    """Reads of neighbouring values as float32."""

    def read(self, load: str, element: str, width: int, address: str) -> str:
        return f"widened(__{load}((const float{width}*)(values + {address})))"

    def function(self, element: str, width: int) -> str:
        fields = ", ".join(f"narrow.{field}" for field in "xyzw"[:width])
        return (
            f"__device__ __forceinline__ {element}{width} widened(float{width} narrow) "
            f"{{ return make_{element}{width}({fields}); }}\n"
        )


@dataclass(frozen=True)
class _Constants:
    """Reads of neighbouring values that are all the same."""

    def read(self, load: str, element: str, width: int, address: str) -> str:
        return f"make_{element}{width}({', '.join(['constant_value[0]'] * width)})"

    def function(self, element: str, width: int) -> str:
        return ""


def _with_vector_reads(text: str, rewriting: _Codes | _Narrow | _Constants) -> str:
    """Every read of two or four values rewritten, and the functions that this takes before the first kernel."""
    pieces, position, widths = [], 0, set[tuple[str, int]]()
    while (read := _VECTOR_READ.search(text, position)) is not None:
        end = _closing(text, read.end())
        load, element, width = read[1], read[2], int(read[3])
        widths.add((element, width))
        pieces += [text[position : read.start()], rewriting.read(load, element, width, text[read.end() : end])]
        position = end + 2
    functions = "".join(rewriting.function(*width) for width in sorted(widths))
    rewritten = "".join(pieces) + text[position:]
    return rewritten.replace('extern "C"', functions + 'extern "C"', 1)


def _with_reads(text: str, constant: str, table: str | None) -> str:
    """Every read of one value replaced: by a constant, or by a look-up of its code."""
    pieces, position = [], 0
    while (read := _READ.search(text, position)) is not None:
        end = _closing(text, read.end())
        inner = text[read.end() : end]
        code = f"__{read[1]}(value_codes + {inner})" if read[1] else f"value_codes[{inner}]"
        pieces += [text[position : read.start()], constant if table is None else f"{table}[{code}]"]
        position = end + 1
    return "".join(pieces) + text[position:]


def _closing(text: str, position: int) -> int:
    """Where the bracket that was opened before `position` closes."""
    depth = 1
    while depth:
        depth += (text[position] in "([") - (text[position] in ")]")
        position += 1
    return position - 1


def _with_tables(text: str, element: str) -> str:
    """A copy of the dictionary in the shared memory of every kernel that reads it."""
    starts = [kernel.end() for kernel in _KERNEL.finditer(text)]
    ends = [*starts[1:], len(text)]
    copy = (
        f"  __shared__ {element} table[{_SHARED_ENTRIES}];\n"
        "  for (int i = threadIdx.x; i < num_distinct; i += blockDim.x) table[i] = dictionary[i];\n"
        "  __syncthreads();\n"
    )
    for start, end in reversed(list(zip(starts, ends, strict=True))):
        if re.search(r"\btable\b", text[start:end]):
            text = text[:start] + copy + text[start:]
    return text
