"""What a mutator gives."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sparsesmith.families.family import FamilyInstance
from sparsesmith.mutation.edits import Edit, edited
from sparsesmith.mutation.subject import Subject


@dataclass(frozen=True)
class Child:
    """A program changed in one way."""

    change: str
    """What was done, in words that the same change of another program shares: `x ldcg`."""
    text: str
    instance: FamilyInstance | None = None
    """Where a family wrote the text, in parameters that it does not offer by itself."""


Mutator = Callable[[Subject], Iterator[Child]]
"""Every child that it knows for a program, none where there is nothing to change. Pure."""


def child(subject: Subject, change: str, edits: Iterable[Edit]) -> Child:
    return Child(change, edited(subject.text, edits))
