"""What a PTX module consists of, read once for all who judge or run it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

StatementKind = Literal[
    "open", "close", "label", "registers", "variable", "targets", "prototype", "pragma", "instruction"
]


class Statement(NamedTuple):
    """One statement of a function's body, blanks collapsed, without its semicolon."""

    kind: StatementKind
    """`open` and `close` are the braces of a scope, `targets` the labels of an indexed branch."""
    text: str
    line: int
    """Of the program's text; 0 where the compiler names none."""


class Instruction(NamedTuple):
    """An instruction taken apart as far as all readers need it."""

    guard: str
    """`%p1`, `!%p1` or empty."""
    opcode: tuple[str, ...]
    """The mnemonic, split at its dots."""
    operands: tuple[str, ...]
    """Split at the commas outside brackets."""
    line: int


@dataclass(frozen=True)
class Variable:
    """A declared variable: its state space, name, and the declaration as printed."""

    space: str
    name: str
    text: str


@dataclass(frozen=True)
class Function:
    """An `.entry` or `.func`. Without a body it is a declaration."""

    name: str
    is_entry: bool
    linkage: str
    """`.visible`, `.weak` and their kin, as printed."""
    results: tuple[str, ...]
    """Declarations of the parameters that it returns."""
    parameters: tuple[str, ...]
    directives: tuple[str, ...]
    """Of performance, such as `.maxntid 256, 1, 1`."""
    body: tuple[Statement, ...] | None
    variables: tuple[Variable, ...]
    """Those of its body."""
    instructions: tuple[Instruction, ...]

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(map(declared_name, self.parameters))

    @property
    def result_names(self) -> tuple[str, ...]:
        return tuple(map(declared_name, self.results))


@dataclass(frozen=True)
class Module:
    """A module; a function that is declared and defined is here once, with its body."""

    heads: tuple[str, ...] = ()
    """`.version`, `.target` and `.address_size`."""
    functions: Mapping[str, Function] = field(default_factory=dict)
    variables: tuple[Variable, ...] = ()
    """Of the module: those that nothing names are left out."""

    @property
    def all_variables(self) -> tuple[Variable, ...]:
        """Those of functions, too."""
        return (*self.variables, *(each for function in self.functions.values() for each in function.variables))


def declared_name(declaration: str) -> str:
    """The name in `.param .align 8 .b8 place[16]`."""
    return declaration.rpartition(" ")[2].partition("[")[0]
