"""What a search ends with: a few changes of the fastest, after the tuner has had enough."""

import asyncio
from dataclasses import replace

import pytest

from services.generator.search import STRATEGIES, Sources, Standing, polishing
from services.generator.search.grading import GradingLimits, graded
from services.generator.search.polishing import NEAR, OF_ANOTHER_FAMILY, ROUND, ROUNDS, WORTHWHILE, may_polish
from services.generator.task import TuningTask
from sparsesmith_proto.api import SearchStrategy
from sparsesmith_proto.kernel import Candidate, EstimatedTiming, Evaluation, FromFamily, Mutated, Outcome, Passed
from tests.generator.orders import make_pattern, make_task
from tests.generator.reports import make_passed, make_timing
from tests.generator.test_mutate_search import Graders, better_when_changed, by_text, mutated

NEARLY = 0.999


def polished(strategy: SearchStrategy, graders: Graders, task: TuningTask) -> tuple[list[Evaluation], Standing]:
    async def run() -> Standing:
        standing, sources = Standing(), Sources(None, 16, 16, polishes=True)
        batches = STRATEGIES[strategy](task, sources, task.order.options.budget.candidates, standing)
        async for report in graded(batches, task, graders, GradingLimits(2, 1), standing.lost):
            standing.add(report)
        return standing

    standing = asyncio.run(asyncio.wait_for(run(), 60))
    return graders.evaluations, standing


def tuning(candidates: int = 400) -> TuningTask:
    return make_task(make_pattern(400, 300), candidates=candidates, seconds=50, search="families")


def hardly_better_when_changed(candidate: Candidate) -> Outcome:
    outcome, origin = by_text(candidate), candidate.origin
    assert isinstance(outcome, Passed)
    return make_passed(make_timing(5 * NEARLY if isinstance(origin, Mutated) else outcome.timing.median_us))


@pytest.mark.parametrize("strategy", ["families", "auto"])
def test_changes_come_last_and_end_with_a_round_that_brought_nothing(strategy: SearchStrategy) -> None:
    evaluations, standing = polished(strategy, Graders(hardly_better_when_changed), tuning())
    kinds = [isinstance(each.candidate.origin, Mutated) for each in evaluations]
    changed = sum(kinds)
    assert 0 < changed <= 2 * ROUND + OF_ANOTHER_FAMILY
    assert kinds == [False] * (len(kinds) - changed) + [True] * changed
    assert standing.of("mutate").num_passed == standing.of("mutate").num_proposed == changed
    assert standing.best is not None


def test_what_gained_is_changed_further() -> None:
    evaluations, standing = polished("families", Graders(better_when_changed), tuning())
    changed = mutated(evaluations)
    assert {origin.generation for origin in changed.values()} == {*range(1, ROUNDS + 1)}
    assert standing.best is not None
    assert isinstance(standing.best.candidate.origin, Mutated)
    best_us = {each.candidate.candidate_id: each.outcome for each in evaluations}
    for origin in changed.values():
        assert isinstance(best_us[origin.parent], Passed)


def test_parents_are_near_the_best_and_of_families_apart() -> None:
    evaluations, _ = polished("families", Graders(hardly_better_when_changed), tuning())
    by_id = {each.candidate.candidate_id: each for each in evaluations}
    parents = [by_id[name] for name in dict.fromkeys(each.parent for each in mutated(evaluations).values())]
    families = [each.candidate.origin.family for each in parents if isinstance(each.candidate.origin, FromFamily)]
    best_us = min(_us(each) for each in evaluations if isinstance(each.candidate.origin, FromFamily))
    assert parents
    assert all(_us(each) <= NEAR * best_us for each in parents)
    assert len({*families}) == len(families)


def test_the_budget_holds() -> None:
    evaluations, _ = polished("families", Graders(better_when_changed), tuning(candidates=20))
    assert len(evaluations) <= 20


def test_other_operations_are_left_as_they_are() -> None:
    task = make_task(make_pattern(60, 50), candidates=60, seconds=50, search="families")
    order = task.order.model_copy(update={"workload": task.order.workload.model_copy(update={"operation": "spmv_t"})})
    task = replace(task, order=order, problem=replace(task.problem, workload=order.workload))
    evaluations, _ = polished("families", Graders(by_text), task)
    assert evaluations
    assert mutated(evaluations) == {}


def test_estimated_times_are_not_polished() -> None:
    def estimated(candidate: Candidate) -> Outcome:
        outcome = by_text(candidate)
        assert isinstance(outcome, Passed)
        timing = EstimatedTiming(median_us=outcome.timing.median_us, traffic_model="of a test")
        return outcome.model_copy(update={"timing": timing})

    evaluations, _ = polished("families", Graders(estimated), tuning())
    assert evaluations
    assert mutated(evaluations) == {}


def test_large_matrices_are_left_to_the_tuner(monkeypatch: pytest.MonkeyPatch) -> None:
    task = tuning()
    assert task.problem.matrix is not None
    assert may_polish(task)
    monkeypatch.setattr(polishing, "MOST_NNZ", task.problem.matrix.nnz - 1)
    assert not may_polish(task)


def test_a_round_goes_on_from_a_gain_that_is_more_than_noise() -> None:
    assert NEARLY > WORTHWHILE


def _us(evaluation: Evaluation) -> float:
    assert isinstance(evaluation.outcome, Passed)
    return evaluation.outcome.timing.median_us
