"""The families' search: what was graded decides what comes next."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from services.generator.search import STRATEGIES, Batch, Sources, Standing
from services.generator.search.families import FIRST_BATCH, NEXT_BATCHES
from services.generator.task import TuningTask
from sparsesmith.families import FAMILIES
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.matrix.values import fixed_values
from sparsesmith.tuning.boosted import BoostedCost
from sparsesmith.tuning.cost import AnalyticCost
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.kernel import Candidate, CompileFailed, Evaluation, FromFamily, Outcome
from tests.generator.orders import make_task
from tests.generator.reports import make_passed, make_report, make_timing
from tests.tuning.trained import make_model

Grade = Callable[[Candidate], Outcome]


def larger_task(candidates: int = 60) -> TuningTask:
    pattern = pattern_from_scipy(sp.random(900, 900, 0.01, format="csr", rng=np.random.default_rng(2)))
    return make_task(pattern, candidates=candidates)


def fixed_task() -> TuningTask:
    task = larger_task()
    values = fixed_values(np.arange(task.problem.nnz) % 7 / 2, "float32")
    return replace(task, problem=replace(task.problem, values=values))


def search(
    grade: Grade | None, limit: int = 60, cost_models: CostModels | None = None, task: TuningTask | None = None
) -> list[Batch]:
    """All batches, each graded before the next is asked for; None: nothing is ever graded."""

    async def collect() -> list[Batch]:
        standing, batches = Standing(), []
        sources = Sources(None, 16, 16, cost_models or CostModels())
        async for batch in STRATEGIES["families"](task or larger_task(), sources, limit, standing):
            batches.append(batch)
            if grade is not None:
                evaluations = tuple(Evaluation(candidate=each, outcome=grade(each)) for each in batch)
                standing.add(make_report([]).model_copy(update={"evaluations": evaluations}))
        return batches

    return asyncio.run(collect())


def family_of(candidate: Candidate) -> str:
    assert isinstance(candidate.origin, FromFamily)
    return candidate.origin.family


def only_fast(family: str) -> Grade:
    return lambda candidate: make_passed(make_timing(2.0 if family_of(candidate) == family else 4.0))


def families_of(batches: list[Batch]) -> Counter[str]:
    return Counter(family_of(candidate) for batch in batches for candidate in batch)


def test_without_a_word_from_evaluators_the_whole_budget_is_proposed() -> None:
    batches = search(None)
    assert [len(batch) for batch in batches] == [FIRST_BATCH] + 4 * [NEXT_BATCHES] + [
        60 - FIRST_BATCH - 4 * NEXT_BATCHES
    ]
    programs = [candidate.program for batch in batches for candidate in batch]
    assert len(set(programs)) == 60


def test_a_family_that_turns_out_fast_gets_more_of_the_budget() -> None:
    told_nothing = families_of(search(None))
    told_it_is_fast = families_of(search(only_fast("csr_stream")))
    assert told_nothing["csr_stream"] < told_it_is_fast["csr_stream"]
    assert told_it_is_fast.most_common(1)[0][0] == "csr_stream"


def test_a_search_ends_early_when_nothing_faster_is_to_be_expected() -> None:
    first: list[str] = []

    def the_first_is_far_ahead(candidate: Candidate) -> Outcome:
        first.append(candidate.program)
        return make_passed(make_timing(1.0 if len(first) == 1 else 40.0))

    num_candidates = sum(map(len, search(the_first_is_far_ahead)))
    assert FIRST_BATCH < num_candidates < 60


def test_programs_that_all_fail_do_not_end_the_search_at_once() -> None:
    batches = search(lambda _: CompileFailed(log="no"))
    assert sum(map(len, batches)) == 60


def test_a_search_goes_on_by_estimates_where_the_model_is_missing() -> None:
    assert sum(map(len, search(None, 8, CostModels(Path("no-such-model"))))) == 8


def test_on_another_device_than_the_models_the_search_goes_by_estimates(tmp_path: Path) -> None:
    make_model("NVIDIA A100").save(tmp_path)
    models = CostModels(tmp_path)
    assert isinstance(models.expected(), BoostedCost)
    search(only_fast("csr_stream"), 12, models)
    assert isinstance(models.expected(), AnalyticCost)


def is_compressed(candidate: Candidate) -> bool:
    return "//@ values " in candidate.program


def only_fast_in_form(compressed: bool) -> Grade:
    return lambda candidate: make_passed(make_timing(2.0 if is_compressed(candidate) == compressed else 3.0))


@pytest.mark.parametrize("compressed", [True, False])
def test_fixed_values_are_compressed_only_where_that_turns_out_faster(compressed: bool) -> None:
    batches = search(only_fast_in_form(compressed), 60, task=fixed_task())
    # Before these come families that exist for fixed values alone.
    first, *later = [batch for batch in batches if family_of(batch[0]) in FAMILIES]
    assert {is_compressed(candidate) for candidate in first} == {True, False}
    assert later
    assert {is_compressed(candidate) for batch in later for candidate in batch} <= {compressed, False}
    if compressed:
        assert any(is_compressed(candidate) for batch in later for candidate in batch)


def test_both_forms_of_a_program_count_against_the_budget() -> None:
    batches = search(None, 7, task=fixed_task())
    programs = [candidate.program for batch in batches for candidate in batch]
    assert len(programs) == len(set(programs)) == 7


def test_a_search_for_equal_bits_proposes_no_program_with_atomics() -> None:
    """On a matrix with a few long rows, for which families that add atomically are worth a try."""
    rng = np.random.default_rng(3)
    skewed = sp.vstack([sp.random(1200, 1200, 0.004, rng=rng), sp.random(3, 1200, 0.9, rng=rng)], format="csr")
    task = make_task(pattern_from_scipy(skewed), candidates=200)
    workload = task.problem.workload.model_copy(update={"deterministic": True})
    kept = replace(task, problem=replace(task.problem, workload=workload))
    usual = {candidate.program for batch in search(None, 200, task=task) for candidate in batch}
    ordered = {candidate.program for batch in search(None, 200, task=kept) for candidate in batch}
    assert any("atomic" in program for program in usual)
    assert len(ordered) >= 16
    assert not any("atomic" in program for program in ordered)
