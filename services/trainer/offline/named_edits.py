"""The child of a named program: what a change of its plain text makes of the text with names (`//@ let`)."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from sparsesmith.program.numbers import is_open

_WORD = re.compile(r"\w+|\s+|[^\w\s]")

Words = Sequence[str]
Change = tuple[int, int, list[str]]
"""Words of the plain parent from the first to before the second become these."""


def named_child(named: str, plain: str, child: str, comes_to_child: Callable[[str], bool]) -> str | None:
    """`named` comes to `plain`; the child of `plain`, which is to be named, is `child`.

    Names stay; else they stay with the numbers behind them changed as elsewhere in the text; else the child's own
    numbers take the places of those that changed: the first of these that comes to the child. None where none does.
    """
    before = _WORD.findall(plain)
    naming, edit = _changes(before, _WORD.findall(named)), _changes(before, _WORD.findall(child))
    kept = "".join(_merged(before, naming, _apart(edit, naming)))
    own = "".join(_merged(before, _apart(naming, edit), edit))
    return next(filter(comes_to_child, (kept, _renumbered(kept, _numbers(before, edit)), own)), None)


def _changes(before: Words, after: Words) -> list[Change]:
    codes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [(i1, i2, list(after[j1:j2])) for tag, i1, i2, j1, j2 in codes if tag != "equal"]


def _apart(changes: Sequence[Change], others: Sequence[Change]) -> list[Change]:
    """Those that touch no word that the others touch."""
    touched = {place for first, past, _ in others for place in range(first, past)}
    return [change for change in changes if touched.isdisjoint(range(change[0], change[1]))]


def _merged(before: Words, *changes: Sequence[Change]) -> Iterator[str]:
    place = 0
    for first, past, new in sorted((change for each in changes for change in each), key=lambda each: each[:2]):
        yield from before[place:first]
        yield from new
        place = past
    yield from before[place:]


def _numbers(before: Words, edit: Sequence[Change]) -> dict[str, str]:
    """Number -> what it became, of single words that were replaced."""
    replaced = [(before[first], new[0]) for first, past, new in edit if past - first == len(new) == 1]
    return {old: new for old, new in replaced if old.isdigit() and new.isdigit()}


def _renumbered(named: str, numbers: Mapping[str, str]) -> str:
    """Those behind names changed, too."""
    lines = named.split("\n")
    return "\n".join(
        "".join(numbers.get(word, word) for word in _WORD.findall(line)) if is_open(line) else line for line in lines
    )
