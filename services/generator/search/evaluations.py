"""Evaluation jobs through the queue, for asyncio."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol, TypeVar

from sparsesmith.errors import Unavailable
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport, InstantJob, InstantReport

log = logging.getLogger(__name__)

WAIT_S = 1.0
"""A thread waits this long at a time, so that the service can stop."""

OUTAGE_PAUSE_S = 1.0
OUTAGE_FIELD = "redis_url"
"""Named by the transport's Unavailable when Redis itself is silent."""


Report = TypeVar("Report", EvaluationReport, InstantReport)


class WorkQueue(Protocol):
    """The generator's end of `sparsesmith.transport.queue.EvaluationQueue`."""

    def submit(self, job: EvaluationJob | InstantJob) -> None: ...

    def wait(self, job_id: str, timeout_s: float) -> EvaluationReport | None: ...

    def wait_instant(self, job_id: str, timeout_s: float) -> InstantReport | None: ...

    def cancel(self, job_id: str) -> None: ...


class QueuedEvaluations:
    """Waits in threads of its own, one for each evaluation that may be under way."""

    def __init__(self, queue: WorkQueue, max_waiting: int, graded: Callable[[EvaluationReport], None]) -> None:
        """`graded` is told of each report."""
        self._queue = queue
        self._threads = ThreadPoolExecutor(max_waiting, thread_name_prefix="evaluation")
        self._graded = graded

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        """The report, however long it takes; an outage of Redis is waited out. Cancelling the call cancels the job.

        Raises Unavailable where every attempt of the evaluators failed.
        """
        report = await self._waited_for(job, self._queue.wait)
        self._graded(report)
        return report

    async def hand_out(self, job: InstantJob) -> InstantReport:
        """As `grade`, of one program that is wanted at once."""
        return await self._waited_for(job, self._queue.wait_instant)

    async def _waited_for(self, job: EvaluationJob | InstantJob, wait: Callable[[str, float], Report | None]) -> Report:
        try:
            while True:
                try:
                    report = await self._turn(job, wait)
                    if report is not None:
                        return report
                except Unavailable as error:
                    if error.field != OUTAGE_FIELD:
                        raise
                    log.warning("evaluation %s waits for Redis: %s", job.job_id, error)
                    await asyncio.sleep(OUTAGE_PAUSE_S)
        except asyncio.CancelledError:
            self._threads.submit(self._withdraw, job.job_id)
            raise

    def close(self) -> None:
        """Let running waits end."""
        self._threads.shutdown(wait=True)

    async def _turn(
        self, job: EvaluationJob | InstantJob, wait: Callable[[str, float], Report | None]
    ) -> Report | None:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._submitted, job, wait)

    def _submitted(self, job: EvaluationJob | InstantJob, wait: Callable[[str, float], Report | None]) -> Report | None:
        """Submitting again changes nothing, and puts back a job that a restarted Redis forgot."""
        self._queue.submit(job)
        return wait(job.job_id, WAIT_S)

    def _withdraw(self, job_id: str) -> None:
        with suppress(Unavailable):
            self._queue.cancel(job_id)
