"""Which mutators are tried first: those that won more often, and none never."""

from collections import Counter
from random import Random

import pytest

from benchmarks.tuning.mutator_worth import counted, read, shares
from services.trainer.offline.recipe import HARVESTS
from sparsesmith.mutation.catalogue import MUTATORS, _ordered, random_mutant
from sparsesmith.mutation.worth import HARVESTED, WORTH, worth_by_mutator
from tests.mutation.programs import instance_subject


def test_the_table_is_what_the_committed_harvests_count() -> None:
    _, changes = read(HARVESTS)
    assert counted(changes) == {name: dict(counts) for name, counts in HARVESTED.items()}


def test_choosing_by_worth_wins_more_often_on_matrices_that_were_not_counted() -> None:
    told = shares(read(HARVESTS)[1])
    assert told["single_by_worth"]["mean"] > 1.4 * told["single_alike"]["mean"]
    assert told["single_alike"]["mean"] > told["as_harvested"]["mean"]


def test_what_won_is_worth_more_and_what_never_won_is_worth_something() -> None:
    worth = worth_by_mutator({"won": (20, 10), "lost": (20, 0), "hardly tried": (1, 0)})
    assert worth["won"] > worth[""] > worth["hardly tried"] > worth["lost"] > 0
    assert worth[""] == pytest.approx(10 / 41)


def test_mutators_are_drawn_as_often_as_they_are_worth_and_each_comes_once() -> None:
    worth = WORTH["spmv"]
    first = Counter(_ordered(Random(str(seed)), worth)[0] for seed in range(4000))
    total = sum(worth.get(name, worth[""]) for name in MUTATORS)
    for name in ("off_grid", "bounds", "staging"):
        assert first[name] / 4000 == pytest.approx(worth[name] / total, abs=0.025)
    assert sorted(_ordered(Random("a"), worth)) == sorted(MUTATORS)


def test_a_program_is_changed_by_what_pays_more_often_than_by_chance() -> None:
    subject = instance_subject("row_bins")

    def of_kinds(worth: dict[str, float] | None) -> Counter[str]:
        found = (random_mutant(subject, str(seed), worth=worth) for seed in range(60))
        return Counter(each.deed.partition(":")[0] for each in found if each is not None)

    even, chosen = of_kinds(None), of_kinds(dict(WORTH["spmv"]))
    assert chosen["off_grid"] + chosen["bounds"] > 1.25 * (even["off_grid"] + even["bounds"])
    assert chosen["grids"] + chosen["staging"] < 0.5 * (even["grids"] + even["staging"])
