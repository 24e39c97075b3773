"""PTX as the one reader sees it (services/evaluator/ptx), to typed instructions.

Register names are resolved through nested scopes to numbers, and labels to instruction indices.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from services.evaluator import ptx
from services.evaluator.ptx import MalformedPtx, read_module
from services.evaluator.ptx.reading import split_operands


class UnsupportedPtx(Exception):
    """The program uses PTX that the interpreter does not model; the message names the instruction and its line."""


@dataclass(frozen=True)
class Register:
    """A virtual register of a function; `negated` marks `!p` for predicate operands."""

    number: int
    negated: bool = False


@dataclass(frozen=True)
class Immediate:
    """A literal: the bits of a float (`float_bits` 32 or 64; decimal ones have 64), else the integer's value."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, a function or a special register's name, plus an offset in bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """A memory operand `[base + offset]`."""

    base: Register | Symbol | None
    offset: int


@dataclass(frozen=True)
class Group:
    """Several operands in braces or parentheses, or joined by `|` (a missing element `_` is None)."""

    elements: tuple[Operand | None, ...]


Operand = Register | Immediate | Symbol | Address | Group


@dataclass(frozen=True)
class Instruction:
    """One PTX instruction; `opcode` is the mnemonic split at its dots."""

    opcode: tuple[str, ...]
    operands: tuple[Operand | None, ...]
    guard: Register | None
    line: int

    @property
    def mnemonic(self) -> str:
        """The mnemonic as written in the PTX."""
        return ".".join(self.opcode)


@dataclass(frozen=True)
class Variable:
    """A declared variable or parameter: state space, element type, size and alignment in bytes, initial contents."""

    name: str
    space: str
    type_name: str
    size_bytes: int
    alignment: int
    initial: tuple[Immediate | Symbol, ...] = ()
    is_external: bool = False


@dataclass
class Function:
    """A parsed `.entry` or `.func`."""

    name: str
    is_entry: bool
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...]
    max_threads: int | None
    has_body: bool = True
    register_types: list[str] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    branch_tables: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class PtxText:
    """A parsed PTX module: its functions by name and its module-level variables."""

    functions: Mapping[str, Function]
    variables: tuple[Variable, ...]


TYPE_BITS = {f"{kind}{bits}": bits for kind in "bsu" for bits in (8, 16, 32, 64)}
TYPE_BITS |= {"f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "f64": 64, "tf32": 32, "b128": 128}

_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|\d+)U?$")
_HEXADECIMAL_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})$|0[dD]([0-9a-fA-F]{16})$")
_DECIMAL_FLOAT = re.compile(r"[+-]?\d+\.\d*(?:[eE][+-]?\d+)?$")
_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+(.*)", re.DOTALL)
_RANGE = re.compile(r"([\w$%]+)<(\d+)>$")
MAX_REGISTERS = 100_000
MAX_VARIABLE_BYTES = 64 << 20
"""Of all variables of a module together."""


def parse_ptx(text: str) -> PtxText:
    """Parse a module; raises UnsupportedPtx for text outside the modelled language."""
    try:
        module = read_module(text)
    except MalformedPtx as error:
        raise UnsupportedPtx(str(error)) from error
    variables = tuple(parse_variable(variable.text) for variable in module.variables)
    if sum(variable.size_bytes for variable in variables) > MAX_VARIABLE_BYTES:
        raise UnsupportedPtx(f"the variables of the program take over {MAX_VARIABLE_BYTES} bytes")
    return PtxText({name: _parsed(function) for name, function in module.functions.items()}, variables)


def _parsed(source: ptx.Function) -> Function:
    parameters, results = (tuple(map(parse_variable, declared)) for declared in (source.parameters, source.results))
    function = Function(source.name, source.is_entry, parameters, results, _max_threads(source.directives))
    function.has_body = source.body is not None
    _BodyParser(function).parse(source)
    return function


def _match(pattern: re.Pattern[str], text: str, position: int) -> re.Match[str]:
    found = pattern.match(text, position)
    if found is None:
        raise UnsupportedPtx(f"cannot parse PTX near {text[position : position + 60]!r}")
    return found


def _max_threads(directives: Sequence[str]) -> int | None:
    for directive in directives:
        name, *numbers = directive.replace(",", " ").split()
        if name in (".maxntid", ".reqntid"):
            return prod(map(int, numbers))
    return None


def parse_variable(text: str) -> Variable:
    """Parse a declaration such as `.shared .align 4 .b8 tile[512]` or `.global .u32 w[2] = {1, 2}`."""
    declaration, _, initial = text.partition("=")
    words = declaration.split()
    space, type_name, alignment, is_external = "", "", 0, False
    index = 0
    while index < len(words) and words[index].startswith("."):
        word = words[index][1:]
        if word == "align":
            index += 1
            alignment = int(words[index])
        elif word in ("shared", "global", "const", "local", "param"):
            space = word
        elif word in TYPE_BITS:
            type_name = word
        elif word == "extern":
            is_external = True
        elif word == "ptr":
            index += 1 if words[index + 1 : index + 2] and words[index + 1] in _POINTER_SPACES else 0
        elif word not in ("visible", "weak", "common", "attribute"):
            raise UnsupportedPtx(f"declaration {declaration.strip()!r} is not supported ('.{word}')")
        index += 1
    if not space or not type_name or index >= len(words):
        raise UnsupportedPtx(f"statement {text.strip()[:80]!r} is not supported")
    name, *dimensions = "".join(words[index:]).split("[")
    element_bytes = TYPE_BITS[type_name] // 8
    count = 1
    for dimension in dimensions:
        size = dimension.rstrip("]")
        count *= int(size, 0) if size else 0
    values = tuple(_parse_initial(part) for part in initial.strip().strip("{}").split(",") if part.strip())
    is_external = is_external or (bool(dimensions) and count == 0)
    return Variable(name, space, type_name, element_bytes * count, alignment or element_bytes, values, is_external)


_POINTER_SPACES = (".global", ".shared", ".const", ".local")


def _parse_initial(text: str) -> Immediate | Symbol:
    text = text.strip().strip("{}").strip()
    literal = _literal(text)
    if literal is not None:
        return literal
    generic = re.match(r"generic\(([\w$%]+)\)", text)
    name, _, offset = (generic.group(1) + text[generic.end() :] if generic else text).partition("+")
    return Symbol(name.strip(), int(offset or "0", 0))


def _literal(text: str) -> Immediate | None:
    if _INTEGER.match(text):
        digits = text.rstrip("U")
        octal = re.match(r"([+-]?)0(\d+)$", digits)
        return Immediate(int(octal.group(1) + octal.group(2), 8) if octal else int(digits, 0))
    hexadecimal = _HEXADECIMAL_FLOAT.match(text)
    if hexadecimal:
        digits = hexadecimal.group(1) or hexadecimal.group(2)
        return Immediate(int(digits, 16), 4 * len(digits))
    if _DECIMAL_FLOAT.match(text):
        return Immediate(int.from_bytes(struct.pack("<d", float(text)), "little"), 64)
    return None


class _BodyParser:
    """Parses a function body: statements, nested scopes, labels and locations."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._scopes: list[dict[str, int]] = []
        self._scope_path: list[int] = []
        self._next_scope = 0
        self._pending: list[tuple[tuple[int, ...], Instruction]] = []
        self._scoped_labels: dict[tuple[int, str], int] = {}
        self._last_label = ""
        self._line = 0
        self._operands: dict[str, tuple[int, Operand | None]] = {}

    def parse(self, source: ptx.Function) -> None:
        instructions = iter(source.instructions)
        for statement in source.body or ():
            self._line = statement.line
            match statement.kind:
                case "open":
                    self._open_scope()
                case "close":
                    self._scopes.pop()
                    self._scope_path.pop()
                case "label":
                    self._last_label = statement.text
                    self._scoped_labels[(self._scope_path[-1], self._last_label)] = len(self._pending)
                case "registers":
                    self._declare_registers(statement.text)
                case "variable":
                    self._function.variables.append(parse_variable(statement.text))
                case "targets":
                    self._note_targets(statement.text)
                case "instruction":
                    self._pending.append((tuple(self._scope_path), self._parse_instruction(next(instructions))))
                case "prototype" | "pragma":
                    pass
        self._resolve_labels()

    def _open_scope(self) -> None:
        self._scopes.append({})
        self._scope_path.append(self._next_scope)
        self._next_scope += 1

    def _note_targets(self, statement: str) -> None:
        if statement.startswith(".branchtargets"):
            targets = tuple(name.strip() for name in statement.split(None, 1)[1].split(","))
            self._function.branch_tables[self._last_label] = targets

    def _declare_registers(self, statement: str) -> None:
        declaration = _match(_REGISTERS, statement, 0)
        type_name = declaration.group(1)
        if type_name != "pred" and TYPE_BITS.get(type_name, 128) == 128:
            raise UnsupportedPtx(f"registers of type .{type_name} (line {self._line}) are not supported")
        for declared in declaration.group(2).split(","):
            name = declared.strip()
            family = _RANGE.match(name)
            count = int(family.group(2)) if family else 1
            if len(self._function.register_types) + count > MAX_REGISTERS:
                raise UnsupportedPtx(f"function {self._function.name} has over {MAX_REGISTERS} virtual registers")
            names = [f"{family.group(1)}{i}" for i in range(count)] if family else [name]
            for register in names:
                self._scopes[-1][register] = len(self._function.register_types)
                self._function.register_types.append(type_name)
        self._operands.clear()

    def _parse_instruction(self, instruction: ptx.Instruction) -> Instruction:
        guard = None
        if instruction.guard:
            operand = self._operand(instruction.guard)
            if not isinstance(operand, Register):
                raise UnsupportedPtx(f"guard @{instruction.guard} (line {self._line}) is not a register")
            guard = operand
        operands = tuple(self._operand(part) for part in instruction.operands)
        return Instruction(instruction.opcode, operands, guard, instruction.line)

    def _operand(self, text: str) -> Operand | None:
        known = self._operands.get(text)
        if known is not None and known[0] == self._scope_path[-1]:
            return known[1]
        operand = self._parse_operand(text)
        self._operands[text] = (self._scope_path[-1], operand)
        return operand

    def _parse_operand(self, text: str) -> Operand | None:
        text = text.strip()
        if text == "_":
            return None
        if text.startswith("["):
            return self._parse_address(text[1 : text.rindex("]")])
        if text.startswith(("{", "(")):
            return Group(tuple(self._operand(part) for part in split_operands(text[1:-1])))
        if "|" in text:
            return Group(tuple(self._operand(part) for part in text.split("|")))
        if text.startswith("!"):
            register = self._operand(text[1:])
            if isinstance(register, Register):
                return Register(register.number, not register.negated)
        return self._register(text) or _literal(text) or _symbol(text)

    def _register(self, name: str) -> Register | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return Register(scope[name])
        return None

    def _parse_address(self, text: str) -> Address:
        base, _, offset = text.partition("+")
        base = base.strip()
        number = _literal(base)
        displacement = int(offset.strip() or "0", 0)
        if number is not None:
            return Address(None, number.value + displacement)
        return Address(self._register(base) or Symbol(base), displacement)

    def _resolve_labels(self) -> None:
        function = self._function
        for (scope, name), index in self._scoped_labels.items():
            function.labels[_scoped(scope, name)] = index
            function.labels.setdefault(name, index)
        for path, instruction in self._pending:
            if instruction.opcode[0] in ("bra", "brx"):
                instruction = self._with_scoped_labels(instruction, path)
            function.instructions.append(instruction)

    def _with_scoped_labels(self, instruction: Instruction, path: tuple[int, ...]) -> Instruction:
        operands = []
        for operand in instruction.operands:
            if isinstance(operand, Symbol):
                scope = next((s for s in reversed(path) if (s, operand.name) in self._scoped_labels), None)
                if scope is not None and operand.name not in self._function.branch_tables:
                    operand = Symbol(_scoped(scope, operand.name))
            operands.append(operand)
        return Instruction(instruction.opcode, tuple(operands), instruction.guard, instruction.line)


def _scoped(scope: int, name: str) -> str:
    return f"{scope}:{name}"


def _symbol(text: str) -> Symbol:
    name, _, offset = text.partition("+")
    return Symbol(name.strip(), int(offset.strip() or "0", 0))
