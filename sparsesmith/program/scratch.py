"""Scratch of a program's own: `//@ scratch NAME = EXPRESSION [TYPE]`, device memory that its kernels share.

It is an argument of every kernel, behind those of the operation. As with formats' scratch, it holds garbage at the
start of every product.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from sparsesmith.errors import InvalidProgram
from sparsesmith.program.expression import MAX_CHARACTERS, Expression, parse_expression

TYPE_BYTES: Mapping[str, int] = {
    "float": 4,
    "double": 8,
    "int": 4,
    "unsigned int": 4,
    "unsigned long long": 8,
    "unsigned short": 2,
    "unsigned char": 1,
}
"""C types that a line may name. Without one it is the element type's."""

MAX_LINES = 8
LEAST_BYTES_ALLOWED = 64 << 20
"""Of all lines together, however small the problem; a large one allows as much as the program's other buffers take:
scratch at most doubles what a product needs of a device's memory."""

MAX_NAME_CHARACTERS = 64
WORD_BYTES = 4
"""Memory is given in whole words: guards and the interpreter's shadow are made of them."""

_FORM = "NAME = EXPRESSION [TYPE]"
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_NAME_CHARACTERS - 1}}}", re.ASCII)
_TYPED = re.compile(r"(.*?[A-Za-z0-9_)]) ([A-Za-z_][A-Za-z0-9_ ]*)", re.ASCII)
"""No expression has two names or numbers side by side: the second begins the type."""


@dataclass(frozen=True)
class Scratch:
    """One line."""

    name: str
    length: Expression
    """In elements."""
    c_type: str
    """One of TYPE_BYTES; empty: the element type's."""
    line: int

    def num_bytes(self, sizes: Mapping[str, int], element_bytes: int) -> int:
        """In whole words. Raises InvalidProgram for a length below 0."""
        length = self.length.evaluate(sizes)
        if length < 0:
            raise InvalidProgram(
                f"line {self.line}: scratch {self.name} has {length} elements, must be from 0",
                field=f"scratch.{self.name}",
                value=length,
                limit=">= 0",
            )
        width = TYPE_BYTES[self.c_type] if self.c_type else element_bytes
        return -(-length * width // WORD_BYTES) * WORD_BYTES


def parse_scratch(rest: str, number: int) -> Scratch:
    """What follows the keyword on line `number`. Raises InvalidProgram."""
    name, equals, written = (" ".join(part.split()) for part in rest.partition("="))
    if not equals or not written:
        _refuse(number, f"scratch {rest.strip()!r} is not {_FORM}", rest.strip(), _FORM)
    if not _NAME.fullmatch(name):
        _refuse(number, f"{name!r} is not the name of scratch", name, f"an identifier of <= {MAX_NAME_CHARACTERS}")
    if len(written) > MAX_CHARACTERS:
        _refuse(number, f"scratch {name}: {len(written)} characters", len(written), f"<= {MAX_CHARACTERS}")
    typed = _TYPED.fullmatch(written)
    length, type_ = (typed[1], typed[2]) if typed else (written, "")
    if type_ and type_ not in TYPE_BYTES:
        _refuse(number, f"scratch {name}: unknown type {type_!r}", type_, ", ".join(TYPE_BYTES))
    return Scratch(name, parse_expression(length), type_, number)


def check_scratch(lines: Sequence[Scratch], known: Sequence[str]) -> None:
    """Raises InvalidProgram for too many lines, an unknown size, or a length that no size makes legal."""
    if len(lines) > MAX_LINES:
        raise InvalidProgram(
            f"{len(lines)} `//@ scratch` lines: at most {MAX_LINES}", field="scratch", value=len(lines), limit=MAX_LINES
        )
    for line in lines:
        for unknown in sorted(line.length.names - set(known)):
            _refuse(line.line, f"scratch {line.name}: unknown name {unknown!r}", unknown, ", ".join(known))
        if not line.length.names:
            line.num_bytes({}, 1)


def scratch_bytes(
    lines: Sequence[Scratch], sizes: Mapping[str, int], element_bytes: int, beside: int
) -> Mapping[str, int]:
    """Of each line, in order; `beside`: bytes of the program's other buffers. Raises InvalidProgram for more."""
    taken = {line.name: line.num_bytes(sizes, element_bytes) for line in lines}
    limit, total = max(LEAST_BYTES_ALLOWED, beside), sum(taken.values())
    if total > limit:
        largest = max(taken, key=taken.__getitem__)
        raise InvalidProgram(
            f"scratch takes {total} bytes ({largest}: {taken[largest]}), at most {limit} "
            f"({LEAST_BYTES_ALLOWED}, or as much as the program's other buffers)",
            field=f"scratch.{largest}",
            value=total,
            limit=limit,
        )
    return taken


def _refuse(number: int, reason: str, value: object, limit: object) -> NoReturn:
    raise InvalidProgram(f"line {number}: {reason} (expected: {limit})", field="scratch", value=value, limit=limit)
