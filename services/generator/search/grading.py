"""Candidate batches through the evaluators: several in flight, taken as they come back, until the budget ends."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from services.generator.search.standing import Batch
from services.generator.task import TuningTask
from sparsesmith.errors import LimitExceeded, Unavailable
from sparsesmith.transport.gpu_kinds import GPU_FIELD
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Evaluation, MeasuredTiming, Passed, TimedOut

log = logging.getLogger(__name__)

IN_FLIGHT_GRACE_S = 2.0
"""How far past the budget reports that are nearly there are still taken: evaluators end in time for them."""

TURN_S = 4.0
"""After this much grading a batch lets the jobs of others go first; what it did not reach is submitted again."""


class Evaluations(Protocol):
    """Where candidates are graded."""

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        """The report, however long it takes. Cancelling the call cancels the job."""
        ...


@dataclass(frozen=True)
class GradingLimits:
    """How one request shares the evaluators with others."""

    batches_in_flight: int
    first_grade_patience_s: float


async def graded(
    batches: AsyncIterator[Batch],
    task: TuningTask,
    evaluations: Evaluations,
    limits: GradingLimits,
    lost: Callable[[Batch], None] = lambda batch: None,
) -> AsyncGenerator[EvaluationReport, None]:
    """Reports as evaluators finish; ends when the batches or the budget do.

    A batch that no evaluator could grade is passed over, and `lost` is told of it. Raises Unavailable where nothing at
    all was graded, LimitExceeded where the workload is beyond the device or the budget.
    """
    grading = _Grading(batches, task, evaluations, limits, lost)
    try:
        while await grading.step():
            for report in grading.collect():
                yield report
        grading.check_something_was_graded()
    finally:
        await grading.close()


class _Grading:
    """One batch being fetched ahead, some being graded."""

    def __init__(
        self,
        batches: AsyncIterator[Batch],
        task: TuningTask,
        evaluations: Evaluations,
        limits: GradingLimits,
        lost: Callable[[Batch], None],
    ) -> None:
        self._batches = batches
        self._task = task
        self._evaluations = evaluations
        self._limits = limits
        self._lost = lost
        self._candidates_left = task.order.options.budget.candidates
        self._num_submitted = 0
        self._gpu: str | None = None
        """The kind that graded so far."""
        self._best_us: float | None = None
        """Of what passed and was timed at length."""
        self._num_reports = 0
        self._failure: Unavailable | None = None
        self._fetch: asyncio.Task[Batch] | None = None
        self._exhausted = False
        self._running: dict[asyncio.Task[EvaluationReport], Batch] = {}

    async def step(self) -> bool:
        """Wait for the next thing to happen. False: there is nothing more to wait for."""
        self._fetch_ahead()
        waiting: set[asyncio.Task[Any]] = {*self._running, *([self._fetch] if self._fetch else [])}
        if not waiting:
            return False
        done, _ = await asyncio.wait(waiting, timeout=self._patience_s(), return_when=asyncio.FIRST_COMPLETED)
        if self._fetch is not None and self._fetch in done:
            self._submit(self._fetch)
        return bool(done) or (self._patience_s() > 0 and bool(self._running))

    def collect(self) -> list[EvaluationReport]:
        done = {task: self._running.pop(task) for task in list(self._running) if task.done()}
        reports = []
        for task, batch in done.items():
            try:
                report = task.result()
                self._check_kind(report)
                self._best_us = _best_final_us(report, self._best_us)
                reports.append(self._reached(report))
            except Unavailable as error:
                log.warning("a batch of %s could not be graded: %s", self._task.job_id, error)
                self._failure = error
                self._exhausted = self._exhausted or error.field == GPU_FIELD
                self._lost(batch)
            except LimitExceeded as error:
                if not self._num_reports:
                    raise
                log.warning("a batch of %s could not be graded: %s", self._task.job_id, error)
                self._lost(batch)
        self._num_reports += len(reports)
        return reports

    def check_something_was_graded(self) -> None:
        if self._num_reports:
            return
        if self._failure is not None:
            raise self._failure
        budget_s = self._task.order.options.budget.seconds
        waited = f"within {self._task.elapsed_s:.0f} s; the budget is {budget_s:g} s"
        missing = "evaluator answered" if self._num_submitted else "candidate was proposed"
        hint = "" if self._task.order.options.search == "families" else "; is the policy still loading?"
        raise Unavailable(f"no {missing} {waited}{hint}", field="budget.seconds", value=budget_s)

    async def close(self) -> None:
        pending: list[asyncio.Task[Any]] = [*self._running, *([self._fetch] if self._fetch else [])]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await cast(Any, self._batches).aclose()

    def _fetch_ahead(self) -> None:
        if self._task.left_s <= 0 or self._candidates_left <= 0:
            self._exhausted = True
        room = len(self._running) < self._limits.batches_in_flight
        if self._fetch is None and room and not self._exhausted:
            self._fetch = asyncio.ensure_future(_next(self._batches))

    def _submit(self, fetch: asyncio.Task[Batch]) -> None:
        self._fetch = None
        try:
            batch = fetch.result()[: self._candidates_left]
        except StopAsyncIteration:
            self._exhausted = True
            return
        self._candidates_left -= len(batch)
        self._grade(batch)

    def _grade(self, batch: Batch) -> None:
        left_s = max(1.0, self._task.left_s)
        job = EvaluationJob(
            job_id=f"{self._task.run_id}-{self._num_submitted}",
            workload=self._task.order.workload,
            candidates=batch,
            budget_s=left_s,
            patience_s=left_s + (0 if self._num_reports else self._limits.first_grade_patience_s),
            turn_s=TURN_S,
            search=self._task.run_id,
            best_us=self._best_us,
            gpu=self._task.order.options.gpu,
            work=len(batch) * self._task.work_a_candidate,
            profiles=self._task.wants_profiles,
        )
        self._num_submitted += 1
        self._running[asyncio.create_task(self._evaluations.grade(job))] = batch

    def _check_kind(self, report: EvaluationReport) -> None:
        """Raises Unavailable for a report of another kind of GPU than those before, which the queue lets none of this
        release make: their times cannot be compared."""
        self._gpu = self._gpu or report.device.gpu
        if report.device.gpu != self._gpu:
            raise Unavailable(
                f"a batch was graded on {report.device.gpu}, the search is one of {self._gpu}", field="device"
            )

    def _reached(self, report: EvaluationReport) -> EvaluationReport:
        """The report without candidates that others' turn kept from being graded, which are submitted once more."""
        reached = tuple(each for each in report.evaluations if not _is_unreached(each))
        left_over = tuple(each.candidate for each in report.evaluations if _is_unreached(each))
        if not reached or not left_over or self._task.left_s <= 0:
            return report
        self._grade(left_over)
        return report.model_copy(update={"evaluations": reached})

    def _patience_s(self) -> float:
        """How long to wait for the next thing: to the end of the budget, longer for what is nearly there."""
        if not self._running:
            return max(0.0, self._task.left_s)
        grace_s = IN_FLIGHT_GRACE_S if self._num_reports else self._limits.first_grade_patience_s
        return max(0.0, self._task.left_s + grace_s)


def _best_final_us(report: EvaluationReport, before_us: float | None) -> float | None:
    """The least time that was taken at length, of a report's programs and of those before; None: there is none."""
    times_us = (before_us, *map(final_us, report.evaluations))
    return min((us for us in times_us if us is not None), default=None)


def final_us(evaluation: Evaluation) -> float | None:
    """What a program takes that passed and was timed at length; None: it is not such."""
    match evaluation.outcome:
        case Passed(timing=MeasuredTiming(is_final=True) as timing):
            return timing.median_us
        case _:
            return None


def _is_unreached(evaluation: Evaluation) -> bool:
    match evaluation.outcome:
        case TimedOut(stage="turn"):
            return True
        case _:
            return False


async def _next(batches: AsyncIterator[Batch]) -> Batch:
    return await anext(batches)
