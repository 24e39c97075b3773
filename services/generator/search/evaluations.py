"""Evaluation jobs through the queue, for asyncio."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

from sparsesmith.errors import Unavailable
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport

log = logging.getLogger(__name__)

WAIT_S = 1.0
"""A thread waits this long at a time, so that the service can stop."""

OUTAGE_PAUSE_S = 1.0
OUTAGE_FIELD = "redis_url"
"""Named by the transport's Unavailable when Redis itself is silent."""


class WorkQueue(Protocol):
    """The generator's end of `sparsesmith.transport.queue.EvaluationQueue`."""

    def submit(self, job: EvaluationJob) -> None: ...

    def wait(self, job_id: str, timeout_s: float) -> EvaluationReport | None: ...

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
        try:
            while True:
                try:
                    if (report := await self._turn(job)) is not None:
                        self._graded(report)
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

    async def _turn(self, job: EvaluationJob) -> EvaluationReport | None:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._submitted, job)

    def _submitted(self, job: EvaluationJob) -> EvaluationReport | None:
        """Submitting again changes nothing, and puts back a job that a restarted Redis forgot."""
        self._queue.submit(job)
        return self._queue.wait(job.job_id, WAIT_S)

    def _withdraw(self, job_id: str) -> None:
        with suppress(Unavailable):
            self._queue.cancel(job_id)
