"""From an accepted job to the state that ends it: a kernel order is tuned, a user's program is graded."""

import time
from collections.abc import Awaitable, Callable
from typing import Protocol, assert_never

from services.generator.evaluation import evaluate_program
from services.generator.generation import generate_kernels
from services.generator.orders import AcceptedJob, EvaluationOrder, KernelOrder
from services.generator.search.joined import JoinedSearches
from services.generator.search.programs import ProgramTask
from services.generator.task import TuningTask
from services.generator.tools import Tools
from sparsesmith.operations.problem import Problem
from sparsesmith_proto.api import EvaluationAnswer, Finished, Graded, JobState, KernelReport

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
                state: JobState = Finished(report=await self._tuned(job, job.order, problem, tell))
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

    async def _tuned(self, job: AcceptedJob, order: KernelOrder, problem: Problem, tell: Tell) -> KernelReport:
        """Kept from before, of an equal search under way, or of a search of its own."""
        if (known := await self._tools.cache.find(order, self._policy_version())) is not None:
            self._counters.answered_from_cache()
            return known

        async def search() -> KernelReport:
            task = TuningTask(job.job_id, job.new_run_id(), order, problem, job.age_s)
            return await generate_kernels(task, self._tools, tell)

        if order.options.search == "instant":  # Who joins another's search would wait for its end.
            return await search()
        return await self._searches.run(order, search)
