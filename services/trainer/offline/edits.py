"""Changes of programs as they are kept: the lines that differ."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any


def changed_lines(parent: str, child: str) -> list[list[Any]]:
    """Where lines of the parent are replaced, and by what: [first, past, new lines]."""
    old, new = parent.split("\n"), child.split("\n")
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [[i1, i2, new[j1:j2]] for tag, i1, i2, j1, j2 in codes if tag != "equal"]


def changed_text(parent: str, lines: Sequence[Sequence[Any]]) -> str:
    """The inverse of `changed_lines`."""
    text = parent.split("\n")
    for first, past, new in reversed(lines):
        text[first:past] = new
    return "\n".join(text)
