"""Through which caches each array is read: `__ldcs(values + j)`, `__ldcg(x + (col[u]))`, plain.

A family has one word for columns and values together and none for x.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sparsesmith.mutation.child import Child, child
from sparsesmith.mutation.edits import Edit, before, replaced
from sparsesmith.mutation.subject import Kernel, Subject, is_named
from sparsesmith.program.restrictions.tokens import Token, closing

PLAIN = "plain"
HINTS = (PLAIN, "ldg", "ldca", "ldcs", "ldcg", "ldlu")
"""CUDA's load functions, without their underscores: constant, all caches, streaming, second level, last use."""
_FUNCTIONS = {f"__{hint}": hint for hint in HINTS[1:]}
_READ_ONLY = ("index", "values", "input")


@dataclass(frozen=True)
class Read:
    """One place that reads an array."""

    array: str
    hint: str
    opening: Token
    """The function's name, or the array's where it is read by a subscript."""
    brackets: tuple[Token, Token] | None
    """Of the subscript; None: a function is called."""

    def by(self, hint: str) -> list[Edit]:
        """What makes it a read with another hint; nothing where it has that already."""
        if hint == self.hint:
            return []
        if self.brackets is None:
            return [replaced(self.opening, "*" if hint == PLAIN else f"__{hint}")]
        left, right = self.brackets
        return [before(self.opening, f"__{hint}("), replaced(left, " + ("), replaced(right, "))")]


def hints(subject: Subject) -> Iterator[Child]:
    """All reads of one array another way."""
    reads = [read for kernel in subject.kernels for read in reads_of(subject, kernel)]
    for array in dict.fromkeys(read.array for read in reads):
        role = subject.arguments[array].role
        for hint in HINTS:
            if hint == "ldg" and role == "input" and subject.starts_early:
                continue
            edits = [edit for read in reads if read.array == array for edit in read.by(hint)]
            if edits:
                yield child(subject, f"{array} {hint}", edits)


def reads_of(subject: Subject, kernel: Kernel) -> Iterator[Read]:
    """Of arrays that a kernel only reads, by a function or a subscript; in the order of the text."""
    code = subject.code
    read_only = {name for name, argument in subject.arguments.items() if argument.role in _READ_ONLY}
    for place in range(kernel.opening, kernel.closing):
        token, following = code[place], code[place + 1].text
        if token.text in _FUNCTIONS and following == "(":
            end = closing(code, place + 1)
            array = next((code[i].text for i in range(place, end) if is_named(code, i, read_only)), None)
            if array is not None:
                yield Read(array, _FUNCTIONS[token.text], token, None)
        elif following == "[" and is_named(code, place, read_only) and code[place - 1].text != "&":
            yield Read(token.text, PLAIN, token, (code[place + 1], code[closing(code, place + 1)]))
