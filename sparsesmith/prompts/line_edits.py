"""Edits of a program by its lines, as a policy may write them in the place of a whole child.

    //@ replace
    lines of the parent, as they stand there
    //@ with
    the lines that take their place

One block after another, from the top of the parent to its end. Lines are quoted, not counted: a small model copies well and
counts badly. Each block means the first place, behind the block before it, where its lines stand.
"""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

REPLACE, WITH = "//@ replace", "//@ with"

Lines = list[str]
Block = tuple[Lines, Lines]
"""Lines of the parent, lines in their place."""


def line_edit(parent: str, child: str) -> str | None:
    """What `edited` makes the child of; None for equal texts and for such as hold `//@ replace` or `//@ with`
    themselves."""
    old, new = parent.split("\n"), child.split("\n")
    if old == new or any(line.startswith((REPLACE, WITH)) for line in (*old, *new)):
        return None
    text = "\n".join(_text(block) for block in _blocks(old, new))
    return text if edited(parent, text) == child else _text((old, new))


def edited(parent: str, text: str) -> str:
    """The child that a line edit makes of its parent. A text that is no line edit, or whose lines are not the parent's,
    stays as it is: the evaluator then says what is wrong with it."""
    if not text.startswith(REPLACE + "\n"):
        return text
    left, child = parent.split("\n"), list[str]()
    for old, new in _parsed(text):
        place = _found(left, old)
        if place is None:
            return text
        child += [*left[:place], *new]
        left = left[place + len(old) :]
    return "\n".join([*child, *left])


def _blocks(old: Lines, new: Lines) -> Iterator[Block]:
    """Each change with as many equal lines before it as say where it is; at the top of the parent, with one behind it."""
    matching = SequenceMatcher(None, old, new, autojunk=False)
    past = 0
    for tag, i1, i2, j1, j2 in matching.get_opcodes():
        if tag == "equal":
            continue
        before = 0
        while i1 - before > past and _found(old[past:], old[i1 - before : i2]) != i1 - before - past:
            before += 1
        if i1 - before == i2:
            i2, j2 = i2 + 1, j2 + 1
        yield old[i1 - before : i2], new[j1 - before : j2]
        past = i2


def _text(block: Block) -> str:
    old, new = block
    return "\n".join([REPLACE, *old, WITH, *new])


def _parsed(text: str) -> Iterator[Block]:
    for block in text.removeprefix(REPLACE + "\n").split("\n" + REPLACE + "\n"):
        old, _, new = block.partition("\n" + WITH)
        yield old.split("\n"), new.removeprefix("\n").split("\n") if new else []


def _found(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Where they first stand; nothing stands nowhere."""
    if not wanted:
        return None
    for place in range(len(lines) - len(wanted) + 1):
        if lines[place : place + len(wanted)] == wanted:
            return place
    return None
