"""A program with knobs is a family, whoever wrote it: its settings are prospects that the tuner searches."""

from collections.abc import Iterator

from sparsesmith.elements import ALL_TYPES
from sparsesmith.families.estimates.cost import Prospect, Work
from sparsesmith.families.family import Family
from sparsesmith.families.proposal import FamilyProspect
from sparsesmith.families.text.program import Choice
from sparsesmith.formats.format import OneOf
from sparsesmith.program.numbers import Knob, knobs_of, listed_settings, set_knobs
from sparsesmith_proto.message import Operation


def family_of(text: str, operation: Operation, name: str = "program") -> Family:
    """The family that a program's knobs span; its programs have them set and may leave facts open.

    Raises InvalidProgram for knobs that are malformed.
    """
    knobs = knobs_of(text)

    def prospects(_: Work) -> Iterator[Prospect]:
        for settings in listed_settings(knobs):
            yield Prospect(1.0, settings)

    return Family(
        name=name,
        operation=operation,
        format="",
        strategy="A program with knobs.",
        parameters={knob.name: _spec(knob) for knob in knobs},
        suits=lambda pattern: True,
        write=lambda choice: _written(text, choice),
        element_types=ALL_TYPES,
        prospects=prospects,
    )


def prospects_of_program(family: Family, work: Work) -> list[FamilyProspect]:
    """That of first values first; nothing is estimated."""
    return [FamilyProspect(family, prospect) for prospect in family.prospects(work)]


def _spec(knob: Knob) -> OneOf:
    return OneOf(knob.values[0], knob.values)


def _written(text: str, choice: Choice) -> str:
    return set_knobs(text, choice.values)
