"""The same programs for the same matrix, and the same text for the same choice, as when golden.json was recorded."""

import json

import pytest

from sparsesmith.families import FAMILIES
from sparsesmith.families.fixed.rows import FIXED_FAMILIES
from tests.families import golden

RECORDED = json.loads(golden.RECORD.read_text(encoding="utf-8"))
EVERY_FAMILY = {**FAMILIES, **FIXED_FAMILIES}


@pytest.mark.parametrize("name", golden.PATTERNS)
def test_the_same_programs_are_proposed_for_the_same_matrix(name: str) -> None:
    assert golden.of_pattern(name) == RECORDED["patterns"][name]


@pytest.mark.parametrize("name", golden.FIXED_PATTERNS)
def test_the_same_programs_are_proposed_for_the_same_values(name: str) -> None:
    assert golden.of_values(name) == RECORDED["values"][name]


@pytest.mark.parametrize("name", EVERY_FAMILY)
def test_a_choice_gives_the_text_that_it_gave(name: str) -> None:
    assert golden.of_family(EVERY_FAMILY[name]) == RECORDED["families"][name]


def test_every_family_is_recorded() -> None:
    assert set(RECORDED["families"]) == set(EVERY_FAMILY)
