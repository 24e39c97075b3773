"""The attacker's grammar: reproducible, all of it in use, beside twins that are legal."""

from benchmarks.attacks import DETOURS, DISGUISES, attempt, names_of
from sparsesmith.program.program import parse_program


def test_an_attempt_is_the_same_for_the_same_number() -> None:
    assert [attempt(number) for number in range(20)] == [attempt(number) for number in range(20)]


def test_every_detour_and_disguise_is_tried() -> None:
    assert set(DETOURS) | set(DISGUISES) <= names_of([attempt(number) for number in range(2000)])


def test_twins_are_within_the_contract_and_differ_from_their_attempts() -> None:
    for tried in map(attempt, range(200)):
        parse_program(tried.twin, "spmv", "float32")
        assert tried.program != tried.twin
