import asyncio
from collections.abc import AsyncIterator

import pytest

from services.generator.search import Batch
from services.generator.search.grading import GradingLimits, graded
from services.generator.task import TuningTask
from sparsesmith.errors import Unavailable
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from tests.generator.orders import make_task
from tests.generator.reports import make_candidate, report_for


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
    reports = grade_all(batches_of(1, 1000), make_task(candidates=1000, seconds=0.5), graders)
    assert 4 <= len(reports) <= 12


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
