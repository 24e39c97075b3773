"""The last so many things, by key."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def remembered(kept: OrderedDict[Key, Value], key: Key, make: Callable[[], Value], most: int) -> Value:
    """What is kept under the key, made where nothing is; the least recently used go. Where `make` raises, all stays as
    it was."""
    if key not in kept:
        kept[key] = make()
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
    return kept[key]
