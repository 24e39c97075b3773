"""Parts of a program, token by token: what a loss is told apart by.

Directives are the structure (format, launches, facts, knobs), numbers what must be exact, the rest is code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from tokenizers import Tokenizer

from services.trainer.tokenizer import EOS_ID
from sparsesmith.program.directives import is_directive

Part = Literal["directives", "numbers", "rest"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class Tokens:
    """A program as the policy writes it."""

    ids: list[int]
    """With `<eos>`."""
    parts: list[int]
    """Place in PARTS of each."""


def program_tokens(tokenizer: Tokenizer, program: str) -> Tokens:
    """Of a token that is no directive, a digit in it decides: numbers are tokens of their own. `<eos>` is rest."""
    encoding = tokenizer.encode(program, add_special_tokens=False)
    ends = _directive_ends(program)
    parts = [PARTS.index(_part(program, first, past, ends)) for first, past in encoding.offsets]
    return Tokens([*encoding.ids, EOS_ID], [*parts, PARTS.index("rest")])


def _part(program: str, first: int, past: int, directives: Sequence[tuple[int, int]]) -> Part:
    if any(low <= first < high for low, high in directives):
        return "directives"
    return "numbers" if program[first:past].strip().isdigit() else "rest"


def _directive_ends(program: str) -> list[tuple[int, int]]:
    """First and past-the-last character of each directive line, its line break included."""
    found, start = list[tuple[int, int]](), 0
    for line in program.splitlines(keepends=True):
        if is_directive(line):
            found.append((start, start + len(line)))
        start += len(line)
    return found
