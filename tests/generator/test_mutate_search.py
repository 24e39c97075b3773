"""The fastest programs, changed: who is changed, how often, and what is told of it."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from services.generator.orders import KernelOrder
from services.generator.search import STRATEGIES, Sources, Standing
from services.generator.search.grading import GradingLimits, graded
from services.generator.search.refine import FirstPrograms
from services.generator.search.trials import told_origin
from services.generator.search.written import WrittenProposer
from services.generator.task import TuningTask
from services.generator.writing.floor import floor_us
from services.generator.writing.mutation import MutationWriter
from sparsesmith.errors import Unavailable
from sparsesmith.families import FAMILIES
from sparsesmith.mutation import WORTH, random_mutant, subject_of
from sparsesmith.operations import Problem
from sparsesmith.program.program import parse_program
from sparsesmith_proto.api import Refinement, SearchStrategy
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Candidate, Evaluation, FromFamily, Mismatch, Mutated, Outcome, Passed, Workload
from tests.generator.orders import make_pattern, make_task
from tests.generator.reports import make_device, make_passed, make_report, make_timing

Grade = Callable[[Candidate], Outcome]


def by_text(candidate: Candidate) -> Outcome:
    """A time between 5 and 10 us that hangs on the text alone."""
    digest = hashlib.sha256(candidate.program.encode()).digest()
    return make_passed(make_timing(5 + 5 * digest[0] / 256))


def better_when_changed(candidate: Candidate) -> Outcome:
    """As `by_text`, halved by each change."""
    outcome, origin = by_text(candidate), candidate.origin
    assert isinstance(outcome, Passed)
    generation = origin.generation if isinstance(origin, Mutated) else 0
    return make_passed(make_timing(outcome.timing.median_us / 2**generation))


class Graders:
    """Evaluators that answer after a moment; some batches nobody can grade."""

    def __init__(self, grade: Grade, lost: frozenset[int] = frozenset()) -> None:
        self._grade = grade
        self._lost = lost
        self._num_jobs = 0
        self.evaluations: list[Evaluation] = []

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        number, self._num_jobs = self._num_jobs, self._num_jobs + 1
        await asyncio.sleep(0.005)
        if number in self._lost:
            raise Unavailable("the evaluators are gone")
        found = tuple(Evaluation(candidate=each, outcome=self._grade(each)) for each in job.candidates)
        self.evaluations += found
        return make_report([], job_id=job.job_id).model_copy(update={"evaluations": found})


def search(
    strategy: SearchStrategy, graders: Graders, task: TuningTask, *, mutates: bool = False, in_flight: int = 2
) -> tuple[list[Evaluation], Standing]:
    """Everything that was graded, through batches in flight as in the service; one at a time knows all before it."""

    async def run() -> Standing:
        standing, sources = Standing(), Sources(None, 16, 16, mutates=mutates)
        batches = STRATEGIES[strategy](task, sources, task.order.options.budget.candidates, standing)
        limits = GradingLimits(batches_in_flight=in_flight, first_grade_patience_s=1)
        async for report in graded(batches, task, graders, limits, standing.lost):
            standing.add(report)
        return standing

    standing = asyncio.run(asyncio.wait_for(run(), 60))
    return graders.evaluations, standing


def refining(candidates: int = 400, **loop: int) -> TuningTask:
    return make_task(make_pattern(60, 50), candidates=candidates, seconds=50, search="refine", refine=loop)


def mutated(evaluations: list[Evaluation]) -> dict[str, Mutated]:
    """By candidate."""
    return {
        each.candidate.candidate_id: each.candidate.origin
        for each in evaluations
        if isinstance(each.candidate.origin, Mutated)
    }


def test_refinement_goes_as_wide_and_as_deep_as_it_was_told() -> None:
    evaluations, _ = search("refine", Graders(better_when_changed), refining(children=3, generations=2, beam=2))
    changed = mutated(evaluations)
    children = Counter(origin.parent for origin in changed.values())
    assert changed
    assert max(children.values()) == 3
    assert max(origin.generation for origin in changed.values()) == 2
    assert all(origin.generation == 1 + _generation(changed, origin.parent) for origin in changed.values())


def refining_a_task(operation: str, axes: dict[str, int], **loop: object) -> TuningTask:
    task = make_task(make_pattern(60, 50), candidates=400, seconds=50, search="refine", refine=loop)
    workload = Workload(operation=operation, element_type="float32", axes=axes)
    return replace(task, order=task.order.model_copy(update={"workload": workload}), problem=Problem(workload))


def test_the_loop_of_fsr_changes_one_program_five_times_down_to_five_changes() -> None:
    task = refining_a_task("top_k", {"n": 5000, "k": 70}, preset="fsr")
    evaluations, _ = search("refine", Graders(better_when_changed), task, in_flight=1)
    parents = Counter(origin.parent for origin in mutated(evaluations).values())
    assert len(parents) == 5
    assert max(parents.values()) == 5
    assert {origin.generation for origin in mutated(evaluations).values()} == {1, 2, 3, 4, 5}


def test_the_first_programs_of_a_task_are_those_of_its_folder() -> None:
    task = refining_a_task("sort", {"n": 3000}, children=1, generations=1, beam=1)
    evaluations, _ = search("refine", Graders(by_text), task)
    first = {origin.family for each in evaluations if isinstance(origin := each.candidate.origin, FromFamily)}
    assert first == {"sort_programs", "sort_ranks", "sort_tiles"}
    assert mutated(evaluations)


def test_no_program_is_graded_twice_and_the_fastest_are_changed() -> None:
    evaluations, standing = search("refine", Graders(by_text), refining(children=4, generations=3, beam=2))
    programs = [each.candidate.program for each in evaluations]
    assert len(set(programs)) == len(programs)
    times = {each.candidate.candidate_id: _us(each) for each in evaluations}
    parents = {origin.parent for origin in mutated(evaluations).values()}
    first = {each.candidate.candidate_id for each in evaluations} - mutated(evaluations).keys()
    assert parents & set(sorted(first, key=times.__getitem__)[:2])
    assert standing.of("mutate").num_proposed == len(mutated(evaluations))


def test_each_attempt_tells_what_was_done_to_which_program_and_how_that_had_fared() -> None:
    evaluations, _ = search("refine", Graders(by_text), refining(children=2, generations=1, beam=2))
    graded_ = {each.candidate.candidate_id: each for each in evaluations}
    for origin in mutated(evaluations).values():
        parent = graded_[origin.parent]
        assert f"{_us(parent):.3g} us" in origin.report
        assert ": " in origin.deed
        assert told_origin(origin) == origin


def test_what_fails_has_no_children_and_does_not_end_the_search() -> None:
    def no_mutant_is_right(candidate: Candidate) -> Outcome:
        is_first = isinstance(candidate.origin, FromFamily)
        return by_text(candidate) if is_first else Mismatch(message="input mixed: y[3] is 1, expected 2")

    evaluations, standing = search("refine", Graders(no_mutant_is_right), refining(children=3, generations=4, beam=2))
    changed = mutated(evaluations)
    assert {origin.generation for origin in changed.values()} == {1}
    assert standing.of("mutate").num_passed == 0
    assert len(changed) >= 6


def test_a_batch_that_nobody_could_grade_ends_no_search() -> None:
    evaluations, standing = search(
        "refine", Graders(by_text, lost=frozenset({4, 6})), refining(children=3, generations=2, beam=2)
    )
    assert mutated(evaluations)
    assert standing.num_under_way == 0


def test_the_same_search_is_made_again() -> None:
    def texts() -> list[str]:
        found, _ = search("refine", Graders(by_text), refining(children=3, generations=2, beam=2), in_flight=1)
        return [each.candidate.program for each in found]

    assert texts() == texts()


def test_auto_changes_programs_only_where_it_is_told_to() -> None:
    task = make_task(make_pattern(60, 50), candidates=120, seconds=50)
    assert mutated(search("auto", Graders(by_text), task)[0]) == {}

    def mutants_are_faster(candidate: Candidate) -> Outcome:
        origin = candidate.origin
        return (
            make_passed(make_timing(5 * 0.9**origin.generation)) if isinstance(origin, Mutated) else by_text(candidate)
        )

    found, standing = search("auto", Graders(mutants_are_faster), task, mutates=True)
    assert mutated(found)
    assert standing.of("mutate").gain > 0
    assert "mutate" in {source.source for source in standing.sources()}


def test_a_program_is_written_again_from_its_parent_and_its_seed() -> None:
    evaluations, _ = search("refine", Graders(better_when_changed), refining(children=2, generations=1, beam=2))
    candidates = {each.candidate.candidate_id: each.candidate for each in evaluations}
    task = refining()
    for name, origin in mutated(evaluations).items():
        parent = candidates[origin.parent]
        assert isinstance(parent.origin, FromFamily)
        family = FAMILIES[parent.origin.family].instance(dict(parent.origin.parameters), "float32")
        subject = subject_of(family.program, task.problem.pattern, "spmv", "float32", 1, family)
        again = random_mutant(subject, origin.seed, origin.deed.count(" + ") + 1, WORTH["spmv"])
        assert again is not None
        assert (again.text, again.deed) == (candidates[name].program, origin.deed)


@pytest.mark.parametrize("operation", ["spmv", "spmm"])
def test_an_operation_without_families_begins_with_the_programs_of_its_folder(operation: str) -> None:
    task = make_task(make_pattern(), element_type="float64")
    task = replace(task, order=_of_operation(task, operation))

    async def propose() -> tuple[Candidate, ...]:
        return await FirstPrograms(task).propose(16, Standing())

    programs = asyncio.run(propose())
    assert len(programs) >= 2
    for candidate in programs:
        parse_program(candidate.program, operation, "float64")


def test_mutants_wait_for_the_first_grades_and_end_with_the_search() -> None:
    async def run() -> None:
        task, standing = refining(), Standing()
        proposer = WrittenProposer(task, 10, Refinement(), MutationWriter(task))
        standing.proposed("families", (Candidate(candidate_id="c", program="p", origin=_family()),), 0.0)
        assert await proposer.propose(4, standing) == ()
        assert proposer.is_busy
        assert not proposer.is_ready
        standing.lost((Candidate(candidate_id="c", program="p", origin=_family()),))
        await asyncio.wait_for(proposer.ready(), 5)
        assert proposer.is_ready

    asyncio.run(run())


def test_the_floor_is_what_copying_values_and_what_is_used_of_vectors_takes() -> None:
    task = make_task(make_pattern(40, 30))
    pattern = task.problem.pattern
    num_bytes = 4 * (pattern.nnz + 40 + len({*pattern.col_indices.tolist()}))
    assert floor_us(task.problem, make_device()) == pytest.approx(num_bytes / 4260e3)


def _of_operation(task: TuningTask, operation: str) -> KernelOrder:
    workload = task.order.workload.model_copy(update={"operation": operation, "element_type": "float64"})
    return task.order.model_copy(update={"workload": workload})


def _family() -> FromFamily:
    return FromFamily(family="csr_scalar", parameters={})


def _generation(changed: dict[str, Mutated], candidate: str) -> int:
    return changed[candidate].generation if candidate in changed else 0


def _us(evaluation: Evaluation) -> float:
    assert isinstance(evaluation.outcome, Passed)
    return evaluation.outcome.timing.median_us
