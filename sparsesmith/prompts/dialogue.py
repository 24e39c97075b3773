"""What is said to a model and what it said before, as messages of a chat."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Line:
    """One message."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True)
class Turn:
    """A program that was tried, and what is told of it."""

    program: str
    told: str


Dialogue = tuple[Line, ...]


def dialogue(brief: str, turns: Sequence[Turn], most_characters: int) -> Dialogue:
    """The brief, then each program with what became of it, the oldest first.

    Of turns before the last only so many stay, the newest, that all turns together have at most so many characters; the
    last is never left out.
    """
    lines = [Line("user", brief)]
    for turn in _kept(turns, most_characters):
        lines += [Line("assistant", f"```cuda\n{turn.program.rstrip()}\n```"), Line("user", turn.told)]
    return tuple(lines)


def _kept(turns: Sequence[Turn], most_characters: int) -> Sequence[Turn]:
    left, first = most_characters, len(turns)
    for number in range(len(turns) - 1, -1, -1):
        left -= len(turns[number].program) + len(turns[number].told)
        if left < 0 and number < len(turns) - 1:
            break
        first = number
    return turns[first:]
