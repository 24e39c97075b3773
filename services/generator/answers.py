"""From an accepted job to the state that ends it: a kernel order is tuned, a user's program is graded."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, assert_never

from services.generator.directions import extra_bytes
from services.generator.evaluation import evaluate_program
from services.generator.generation import generate_kernels
from services.generator.orders import AcceptedJob, EvaluationOrder, KernelOrder, directions_of
from services.generator.search.joined import JoinedSearches
from services.generator.search.programs import ProgramTask
from services.generator.task import TuningTask
from services.generator.tools import Tools
from sparsesmith.operations.problem import Problem
from sparsesmith_proto.api import EvaluationAnswer, Finished, Graded, JobState, KernelReport, Running

Tell = Callable[[JobState], Awaitable[None]]
"""Takes a job's states on the way."""


class Counters(Protocol):
    """What is counted of jobs: `services.generator.metrics.Metrics`."""

    def job_ended(self, kind: str, state: JobState, seconds: float) -> None: ...

    def answered_from_cache(self) -> None: ...


class Answers:
    """Of one service; equal orders at one time share one search."""

    def __init__(self, tools: Tools, policy_version: Callable[[], int | None], counters: Counters) -> None:
        """`policy_version`: of the engine that serves now; None: none does."""
        self._tools = tools
        self._policy_version = policy_version
        self._counters = counters
        self._searches = JoinedSearches()

    async def answer(self, job: AcceptedJob, problem: Problem, tell: Tell) -> JobState:
        """The job's last state. Raises errors of the tree, which end the job as failed."""
        started = time.monotonic()
        match job.order:
            case KernelOrder():
                state: JobState = Finished(report=await self._tuned_directions(job, job.order, problem, tell))
            case EvaluationOrder():
                state = Graded(answer=await self._evaluated(job, job.order, problem, tell))
            case _:
                assert_never(job.order)
        self._counters.job_ended(job.order.kind, state, time.monotonic() - started)
        return state

    async def _evaluated(
        self, job: AcceptedJob, order: EvaluationOrder, problem: Problem, tell: Tell
    ) -> EvaluationAnswer:
        task = ProgramTask(job.job_id, job.new_run_id(), order, problem)
        return await evaluate_program(task, self._tools.evaluations, self._tools.trials, tell)

    async def _tuned_directions(
        self, job: AcceptedJob, order: KernelOrder, problem: Problem, tell: Tell
    ) -> KernelReport:
        """A's report, with that of A^T where both are asked for: one after the other, each with its share."""
        await self._tools.trials.begin(job.job_id)
        if order.transposed is None:
            return await self._tuned(job, order, problem, tell)
        problems = await asyncio.to_thread(directions_of, order, problem)
        reports: list[KernelReport] = []
        for each in problems:
            graded = sum(report.search.num_candidates for report in reports)
            told = _counted_from(graded, order.options.budget.candidates, tell)
            direction = order.of_direction(each.workload)
            if reports:  # Both on one kind of GPU.
                direction = direction.on(reports[0].device.gpu)
            reports.append(await self._tuned(job, direction, each, told))
        forward, backward = reports[0], reports[-1]
        extra = await asyncio.to_thread(extra_bytes, problems, reports)
        return forward.model_copy(update={"transposed": backward.model_copy(update={"extra_bytes": extra})})

    async def _tuned(self, job: AcceptedJob, order: KernelOrder, problem: Problem, tell: Tell) -> KernelReport:
        """Kept from before, of an equal search under way, or of a search of its own."""
        if (known := await self._tools.cache.find(order, self._policy_version())) is not None:
            self._counters.answered_from_cache()
            return known

        async def search() -> KernelReport:
            gpu = await self._tools.gpus.kind(order.options.gpu)
            task = TuningTask(job.job_id, job.new_run_id(), order, problem, job.age_s, gpu=gpu)
            return await generate_kernels(task, self._tools, tell)

        if order.options.search == "instant":  # Who joins another's search would wait for its end.
            return await search()
        return await self._searches.run(order, search)


def _counted_from(graded: int, candidates: int, tell: Tell) -> Tell:
    """Tells of the second search of a job with what the first one graded, and of the budget of both."""

    async def told(state: JobState) -> None:
        if isinstance(state, Running):
            counts = {"num_graded": graded + state.num_graded, "budget_candidates": candidates}
            state = state.model_copy(update=counts)
        await tell(state)

    return told
