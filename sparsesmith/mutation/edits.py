"""Changes of a text by place."""

from collections.abc import Iterable
from typing import NamedTuple

from sparsesmith.program.directives import Launch
from sparsesmith.program.expression import Expression
from sparsesmith.program.restrictions.tokens import Token


class Edit(NamedTuple):
    """The characters from `start` to before `end` are replaced."""

    start: int
    end: int
    text: str


def replaced(token: Token, text: str) -> Edit:
    return Edit(token.start, token.end, text)


def before(token: Token, text: str) -> Edit:
    return Edit(token.start, token.start, text)


def after(token: Token, text: str) -> Edit:
    return Edit(token.end, token.end, text)


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with all of them made; they do not overlap, and of two at one place the first given comes first."""
    pieces, position = [], 0
    for edit in sorted(edits, key=lambda each: (each.start, each.end)):
        if edit.start < position:
            raise ValueError(f"two edits overlap at {edit.start}")
        pieces += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*pieces, text[position:]])


def launch_line(launch: Launch, *, grid: str = "", block: str = "", shared: str = "") -> str:
    """The directive of a launch, with another grid, block or shared memory where that is given."""
    words = [
        f"//@ launch {launch.kernel}",
        f"grid={grid or _texts(launch.grid)}",
        f"block={block or _texts(launch.block)}",
    ]
    if shared or launch.shared.text != "0":
        words.append(f"shared={shared or launch.shared.text}")
    if launch.dependency != "full":
        words.append(f"dependency={launch.dependency}")
    return " ".join(words)


def _texts(expressions: tuple[Expression, ...]) -> str:
    return ",".join(expression.text for expression in expressions)
