import asyncio
from collections.abc import AsyncIterator

import pytest

from services.generator.orders import WORK_A_CANDIDATE
from services.generator.search import Batch
from services.generator.search.grading import GradingLimits, graded
from services.generator.task import TuningTask
from sparsesmith.errors import LimitExceeded, Unavailable
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import TimedOut
from tests.generator.orders import make_pattern, make_task
from tests.generator.reports import make_candidate, make_passed, make_timing, report_for


class Graders:
    """Evaluators as a test wants them: each job takes `seconds`."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self.jobs: list[EvaluationJob] = []
        self.most_at_a_time = 0
        self.num_cancelled = 0
        self._num_running = 0

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        self.jobs.append(job)
        self._num_running += 1
        self.most_at_a_time = max(self.most_at_a_time, self._num_running)
        try:
            await asyncio.sleep(self._seconds)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self._num_running -= 1
        return report_for(job)


async def batches_of(size: int, count: int) -> AsyncIterator[Batch]:
    for number in range(count):
        yield tuple(make_candidate(f"c{number}-{place}") for place in range(size))


async def endless() -> AsyncIterator[Batch]:
    await asyncio.sleep(3600)
    yield ()


def grade_all(
    batches: AsyncIterator[Batch], task: TuningTask, graders: Graders, in_flight: int = 2, patience_s: float = 1.0
) -> list[EvaluationReport]:
    async def collect() -> list[EvaluationReport]:
        limits = GradingLimits(batches_in_flight=in_flight, first_grade_patience_s=patience_s)
        return [report async for report in graded(batches, task, graders, limits)]

    return asyncio.run(collect())


def test_every_batch_is_graded_and_none_beyond_the_budget() -> None:
    graders = Graders()
    reports = grade_all(batches_of(4, 10), make_task(candidates=10), graders)
    assert [len(report.evaluations) for report in reports] == [4, 4, 2]


def test_batches_in_flight_are_bounded() -> None:
    graders = Graders(seconds=0.02)
    assert len(grade_all(batches_of(1, 12), make_task(candidates=12), graders, in_flight=3)) == 12
    assert graders.most_at_a_time == 3


def test_evaluation_jobs_of_a_run_have_names_of_their_own() -> None:
    graders = Graders()
    grade_all(batches_of(1, 3), make_task(), graders)
    assert [job.job_id for job in graders.jobs] == ["job-1.r-0", "job-1.r-1", "job-1.r-2"]


def test_the_search_ends_with_its_seconds_though_candidates_keep_coming() -> None:
    graders = Graders(seconds=0.1)
    reports = grade_all(batches_of(1, 1000), make_task(candidates=1000, seconds=2), graders)
    assert 4 <= len(reports) <= 45


def test_the_first_evaluation_may_take_longer_than_the_budget() -> None:
    assert len(grade_all(batches_of(1, 1), make_task(seconds=0.1), Graders(seconds=0.4))) == 1


def test_without_an_evaluator_the_search_says_so_and_withdraws_its_jobs() -> None:
    graders = Graders(seconds=3600)
    with pytest.raises(Unavailable, match="no evaluator answered"):
        grade_all(batches_of(1, 1), make_task(seconds=0.1), graders, patience_s=0.2)
    assert graders.num_cancelled == 1


def test_without_a_candidate_the_search_says_so() -> None:
    with pytest.raises(Unavailable, match="no candidate"):
        grade_all(endless(), make_task(seconds=0.1), Graders())


class OneATurn(Graders):
    """Evaluators that others wait for: they reach one candidate of each job."""

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        report = await super().grade(job)
        unreached = TimedOut(stage="turn", limit_s=1, message="others had their turn")
        first, *others = report.evaluations
        later = (each.model_copy(update={"outcome": unreached}) for each in others)
        return report.model_copy(update={"evaluations": (first, *later)})


def test_what_others_turn_kept_from_being_graded_is_submitted_again() -> None:
    graders = OneATurn()
    reports = grade_all(batches_of(3, 2), make_task(candidates=6), graders)
    graded_names = [each.candidate.candidate_id for report in reports for each in report.evaluations]
    assert sorted(graded_names) == sorted(f"c{number}-{place}" for number in range(2) for place in range(3))
    assert sorted(len(job.candidates) for job in graders.jobs) == [1, 1, 2, 2, 3, 3]
    assert len({job.job_id for job in graders.jobs}) == 6


def test_what_was_not_reached_when_the_time_is_over_is_told_as_it_is() -> None:
    reports = grade_all(batches_of(2, 1), make_task(seconds=0.1), OneATurn(seconds=0.3))
    assert [each.outcome.outcome for each in reports[0].evaluations] == ["compile_failed", "timed_out"]


def test_evaluators_are_told_how_long_a_report_is_waited_for_and_what_a_job_is_worth_waiting() -> None:
    graders = Graders()
    grade_all(batches_of(2, 3), make_task(seconds=20), graders, in_flight=1, patience_s=7)
    first, second, _ = graders.jobs
    assert first.patience_s is not None
    assert second.patience_s is not None
    assert 26 < first.patience_s <= 27
    assert 19 < second.patience_s <= 20
    assert first.budget_s <= 20
    small, large = (make_task(make_pattern(size, size, 0.1)) for size in (10, 1000))
    assert work_of(small) == 2 * (WORK_A_CANDIDATE + small.problem.nnz + 20)
    assert work_of(large) > work_of(small)


def work_of(task: TuningTask) -> int:
    graders = Graders()
    grade_all(batches_of(2, 1), task, graders)
    work = graders.jobs[0].work
    assert work is not None
    return work


class Refusing(Graders):
    """The first job is graded, what follows is beyond the budget."""

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        if self.jobs:
            raise LimitExceeded("the budget of 5 s was spent", field="budget.seconds", value=5)
        return await super().grade(job)


def test_a_batch_beyond_the_budget_takes_nothing_from_those_before() -> None:
    assert len(grade_all(batches_of(1, 3), make_task(), Refusing(), in_flight=1)) == 1


def test_a_search_whose_first_batch_is_beyond_the_budget_says_so() -> None:
    refusing = Refusing()
    refusing.jobs.append(EvaluationJob(job_id="x", workload=make_task().order.workload, candidates=(make_candidate(),)))
    with pytest.raises(LimitExceeded, match="budget of 5 s was spent"):
        grade_all(batches_of(1, 3), make_task(), refusing)


def test_a_job_is_told_of_the_best_that_was_timed_at_length() -> None:
    class Timing(Graders):
        """The first job's two candidates take 4 and 3 us, the last alone timed at length, then all take 2, briefly."""

        async def grade(self, job: EvaluationJob) -> EvaluationReport:
            report = await super().grade(job)
            times = (make_timing(4.0), make_timing(3.0).model_copy(update={"is_final": True}))
            if len(self.jobs) > 1:
                times = (make_timing(2.0), make_timing(2.0))
            evaluations = tuple(
                each.model_copy(update={"outcome": make_passed(timing)})
                for each, timing in zip(report.evaluations, times, strict=True)
            )
            return report.model_copy(update={"evaluations": evaluations})

    graders = Timing()
    grade_all(batches_of(2, 3), make_task(), graders, in_flight=1)
    assert [job.best_us for job in graders.jobs] == [None, 3.0, 3.0]
