"""The tuner on recorded and made-up times."""

from collections import Counter

import numpy as np
import pytest

from sparsesmith.families import FamilyInstance
from sparsesmith.tuning.boosted import load_boosted_cost
from sparsesmith.tuning.cost import AnalyticCost
from sparsesmith.tuning.grid import FloatArray, Grid
from sparsesmith.tuning.tuner import Tuner, TuningLimits, expected_improvement
from tests.tuning.grids import ROOT, KnownCost, make_grid, recorded_grid, run, times_of

SHIPPED = ROOT / "models" / "cost-h200"
MATRICES = ("jagmesh7", "bcsstk13")


def tireless(candidates: int) -> TuningLimits:
    return TuningLimits(candidates=candidates, patience=candidates, hope=0.0)


def best_after(grid: Grid, times_us: FloatArray, tuner: Tuner) -> float:
    """The best time that was found, over the best there is."""
    asked = run(tuner, times_of(grid, times_us))
    return min(map(times_of(grid, times_us), asked)) / float(times_us.min())


@pytest.mark.parametrize("matrix", MATRICES)
def test_the_shipped_cost_model_is_within_two_per_cent_of_the_best_recorded_program_after_eight(matrix: str) -> None:
    grid, times_us = recorded_grid(matrix)
    assert len(grid.prospects) >= 20
    assert best_after(grid, times_us, Tuner(grid, load_boosted_cost(SHIPPED), tireless(8))) <= 1.02


@pytest.mark.parametrize("matrix", MATRICES)
def test_the_analytic_estimate_gets_there_within_half_of_the_recorded_programs(matrix: str) -> None:
    grid, times_us = recorded_grid(matrix)
    assert best_after(grid, times_us, Tuner(grid, AnalyticCost(), tireless(len(times_us) // 2))) <= 1.02


def test_measurements_correct_a_cost_model_that_is_wrong_about_a_family() -> None:
    grid = make_grid("csr_scalar", "csr_vector", "sell", "csr_stream")
    true = np.log(grid.estimates())
    wrong = true + np.where(np.array(grid.families) == "csr_stream", -1.0, 0.0)
    fooled = np.argsort(wrong)[:16]
    found = best_after(grid, np.exp(true), Tuner(grid, KnownCost(wrong), tireless(16)))
    assert set(np.array(grid.families)[fooled]) == {"csr_stream"}
    assert found <= 1.02 < np.exp(true[fooled].min() - true.min())


def test_families_that_were_never_the_fastest_are_not_tried() -> None:
    grid = make_grid("csr_scalar", "csr_vector", "sell")
    slower = np.where(np.array(grid.families) == "csr_vector", 0.0, 1.0)
    cost = KnownCost(slower, left_out=frozenset({"sell", "csr_scalar"}))
    asked = run(Tuner(grid, cost, tireless(40)), lambda instance: 2.0)
    assert {instance.family for instance in asked} == {"csr_vector"}


def test_a_family_that_was_never_the_fastest_is_tried_where_it_is_expected_to_be() -> None:
    grid = make_grid("csr_scalar", "csr_vector", "sell")
    expected = {"csr_vector": 0.0, "csr_scalar": 1.0, "sell": -0.01}
    log_costs = np.array([expected[family] for family in grid.families])
    cost = KnownCost(log_costs, left_out=frozenset({"sell", "csr_scalar"}))
    asked = run(Tuner(grid, cost, tireless(40)), lambda instance: 2.0)
    assert {instance.family for instance in asked} == {"csr_vector", "sell"}


def test_where_nothing_else_is_left_they_are_tried_all_the_same() -> None:
    grid = make_grid("csr_scalar")
    cost = KnownCost(np.log(grid.estimates()), left_out=frozenset({"csr_scalar"}))
    assert len(run(Tuner(grid, cost, tireless(5)), lambda instance: 2.0)) == 5


def test_a_first_batch_is_of_different_families() -> None:
    grid = make_grid()
    first = Tuner(grid, AnalyticCost()).next_batch(8)
    assert len({instance.family for instance in first}) >= 5


def test_no_program_is_asked_for_twice_and_the_budget_is_kept() -> None:
    asked = run(Tuner(make_grid(), AnalyticCost(), tireless(50)), lambda instance: 2.0 + len(instance.program) % 7)
    assert len({instance.program for instance in asked}) == len(asked) == 50


def test_a_grid_that_is_used_up_ends_the_search() -> None:
    grid = make_grid("csr_scalar")
    tuner = Tuner(grid, AnalyticCost(), tireless(10_000))
    asked = run(tuner, lambda instance: 2.0)
    programs = {prospect.instance("float32", 1).program for prospect in grid.prospects}
    assert {instance.program for instance in asked} == programs
    assert tuner.done


def test_it_stops_when_nothing_is_likely_to_be_faster() -> None:
    grid = make_grid("csr_scalar", "csr_vector", "sell")
    sure = KnownCost(np.log(grid.estimates()))
    tuner = Tuner(grid, sure, TuningLimits(candidates=500, patience=500, hope=0.05))
    asked = run(tuner, times_of(grid, grid.estimates()))
    assert tuner.done
    assert len(asked) < len(grid.prospects) // 4
    assert tuner.best_us == pytest.approx(grid.estimates().min(), rel=0.01)


def test_it_stops_when_many_in_a_row_brought_nothing() -> None:
    grid = make_grid()
    first: list[FamilyInstance] = []

    def only_the_first_is_fast(instance: FamilyInstance) -> float:
        first.append(instance)
        return 1.0 if len(first) == 1 else 3.0

    tuner = Tuner(grid, AnalyticCost(), TuningLimits(candidates=500, patience=12, hope=0.0))
    assert len(run(tuner, only_the_first_is_fast)) == 16


def test_nothing_is_stopped_before_something_was_measured() -> None:
    tuner = Tuner(make_grid(), AnalyticCost(), TuningLimits(candidates=40, patience=4))
    batches = [tuner.next_batch(8) for _ in range(6)]
    assert list(map(len, batches)) == [8, 8, 8, 8, 8, 0]


def test_neighbours_of_programs_that_fail_are_put_off() -> None:
    grid = make_grid("csr_scalar", "csr_vector", "sell", "csr_stream")
    favoured = np.log(grid.estimates()) - 0.3 * (np.array(grid.families) == "sell")
    tuner = Tuner(grid, KnownCost(favoured), tireless(40))
    asked = []
    while batch := tuner.next_batch(4):
        asked += batch
        for instance in batch:
            tuner.tell(instance, "compile_failed" if instance.family == "sell" else 2.0)
    assert Counter(instance.family for instance in asked)["sell"] < 20
    assert tuner.best_us == 2.0


def test_the_first_word_on_a_program_counts_and_a_stranger_is_refused() -> None:
    tuner = Tuner(make_grid(), AnalyticCost())
    (instance,) = tuner.next_batch(1)
    tuner.tell(instance, 5.0)
    tuner.tell(instance, 1.0)
    assert tuner.best_us == 5.0
    with pytest.raises(KeyError):
        tuner.tell(FamilyInstance("csr_scalar", {}, "another", "float32"), 1.0)


def test_the_same_measurements_give_the_same_programs() -> None:
    grid, times_us = recorded_grid("jagmesh7")
    runs = [run(Tuner(grid, AnalyticCost()), times_of(grid, times_us)) for _ in range(2)]
    assert runs[0] == runs[1]


def test_another_cost_model_goes_on_from_what_was_measured() -> None:
    grid, times_us = recorded_grid("bcsstk13")
    backwards = KnownCost(-np.log(grid.estimates()))
    tuner = Tuner(grid, backwards, tireless(len(times_us)))
    asked = tuner.next_batch(4)
    for instance in asked:
        tuner.tell(instance, times_of(grid, times_us)(instance))
    tuner.rely_on(KnownCost(np.log(times_us)))
    following = tuner.next_batch(1)[0]
    assert following not in asked
    assert times_of(grid, times_us)(following) == times_us.min() or tuner.best_us == times_us.min()


def test_expected_improvement_is_that_of_many_samples() -> None:
    mean, deviation = np.array([0.1, -0.2, 0.0]), np.array([0.2, 0.1, 0.3])
    samples = np.random.default_rng(0).normal(mean, deviation, (400_000, 3))
    expected = np.maximum(0.05 - samples, 0).mean(axis=0)
    assert expected_improvement(mean, deviation, 0.05) == pytest.approx(expected, abs=2e-3)


def test_the_shipped_cost_model_is_small_and_has_a_card() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 4 * 2**20
    card = (SHIPPED / "README.md").read_text(encoding="utf-8")
    assert all(part in card for part in ("**Data**", "**Held out**", "**Reproduce**"))
