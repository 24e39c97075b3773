"""Launch expressions: whole numbers, size names, + - * //, parentheses, ceil_div, min, max. Never `eval`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, assert_never

from sparsesmith.errors import InvalidProgram

MAX_CHARACTERS = 256
MAX_DEPTH = 32
MAX_NUMBER = 2**31 - 1


@dataclass(frozen=True)
class Number:
    value: int


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Binary:
    operator: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True)
class Call:
    function: str
    """`ceil_div`, `min` or `max`."""
    arguments: tuple["Node", ...]


Node = Number | Name | Binary | Call

FUNCTIONS = ("ceil_div", "min", "max")

_TOKEN = re.compile(r"\s*(?:(?P<number>[0-9]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<operator>//|[-+*(),]))")


@dataclass(frozen=True)
class Expression:
    text: str
    root: Node

    @property
    def names(self) -> frozenset[str]:
        """Sizes that the value depends on."""
        return frozenset(_names(self.root))

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The value. Raises InvalidProgram for an unknown name or a division by zero or less."""
        return _Evaluation(self.text, sizes).value(self.root)


def parse_expression(text: str) -> Expression:
    """Raises InvalidProgram for anything outside the grammar, longer than 256 characters or nested deeper than 32."""
    text = text.strip()
    if len(text) > MAX_CHARACTERS:
        raise InvalidProgram(
            f"launch expression of {len(text)} characters: at most {MAX_CHARACTERS}",
            field="launch",
            value=len(text),
            limit=MAX_CHARACTERS,
        )
    return Expression(text, _Parser(text).parse())


class _Parser:
    """Recursive descent: sum = product ((+|-) product)*, product = atom ((*|//) atom)*."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._position = 0

    def parse(self) -> Node:
        node = self._sum(0)
        if self._position < len(self._tokens):
            self._refuse(f"unexpected {self._tokens[self._position]!r}")
        return node

    def _split(self) -> list[str]:
        tokens, position = [], 0
        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None:
                hint = " (use // to divide)" if self._text[position:].lstrip().startswith("/") else ""
                self._refuse(f"unexpected {self._text[position:].strip()[:1]!r}{hint}")
            tokens.append(match.group().strip())
            position = match.end()
        return tokens

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._position += 1
        return token

    def _sum(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self._refuse(f"nested deeper than {MAX_DEPTH}")
        node = self._product(depth)
        while self._peek() in ("+", "-"):
            node = Binary(self._take(), node, self._product(depth))
        return node

    def _product(self, depth: int) -> Node:
        node = self._atom(depth)
        while self._peek() in ("*", "//"):
            node = Binary(self._take(), node, self._atom(depth))
        return node

    def _atom(self, depth: int) -> Node:
        token = self._take()
        if token.isdigit():
            if len(token) > 10 or int(token) > MAX_NUMBER:
                self._refuse(f"{token} is larger than {MAX_NUMBER}")
            return Number(int(token))
        if token == "(":
            node = self._sum(depth + 1)
            self._expect(")")
            return node
        if token in FUNCTIONS:
            return self._call(token, depth)
        if not token.isidentifier():
            self._refuse(f"unexpected {token!r}" if token else "it ends too early")
        return Name(token)

    def _call(self, function: str, depth: int) -> Call:
        self._expect("(")
        arguments = [self._sum(depth + 1)]
        while self._peek() == ",":
            self._take()
            arguments.append(self._sum(depth + 1))
        self._expect(")")
        if len(arguments) < 2 or (function == "ceil_div" and len(arguments) > 2):
            self._refuse(f"{function} takes {'two' if function == 'ceil_div' else 'two or more'} arguments")
        return Call(function, tuple(arguments))

    def _expect(self, token: str) -> None:
        found = self._take()
        if found != token:
            self._refuse(f"expected {token!r}, found {found!r}" if found else f"expected {token!r} at the end")

    def _refuse(self, reason: str) -> NoReturn:
        raise InvalidProgram(
            f"launch expression {self._text!r}: {reason}",
            field="launch",
            value=self._text,
            limit="whole numbers, sizes, + - * //, parentheses, ceil_div, min, max",
        )


@dataclass(frozen=True)
class _Evaluation:
    text: str
    sizes: Mapping[str, int]

    def value(self, node: Node) -> int:
        match node:
            case Number(value):
                return value
            case Name(name):
                return self._size(name)
            case Binary(operator, left, right):
                return self._binary(operator, self.value(left), self.value(right))
            case Call(function, arguments):
                return self._call(function, [self.value(argument) for argument in arguments])
            case _:
                assert_never(node)

    def _size(self, name: str) -> int:
        if name not in self.sizes:
            known = ", ".join(self.sizes)
            raise InvalidProgram(
                f"launch expression {self.text!r}: unknown name {name!r} (known: {known})",
                field="launch",
                value=name,
                limit=known,
            )
        return self.sizes[name]

    def _binary(self, operator: str, left: int, right: int) -> int:
        match operator:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case _:
                return left // self._divisor(right)

    def _call(self, function: str, values: list[int]) -> int:
        match function:
            case "min":
                return min(values)
            case "max":
                return max(values)
            case _:
                return -(-values[0] // self._divisor(values[1]))

    def _divisor(self, value: int) -> int:
        if value < 1:
            raise InvalidProgram(
                f"launch expression {self.text!r} divides by {value}", field="launch", value=value, limit=">= 1"
            )
        return value


def _names(node: Node) -> list[str]:
    match node:
        case Number():
            return []
        case Name(name):
            return [name]
        case Binary(_, left, right):
            return _names(left) + _names(right)
        case Call(_, arguments):
            return [name for argument in arguments for name in _names(argument)]
        case _:
            assert_never(node)
