"""Accepted jobs: a bounded queue, a few of them running at a time, none lost.

A job is in the ledger before its acceptance is told to anyone, and stays there unfinished until it is answered: a
service that was stopped or killed finds it there and starts it over.
"""

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from services.generator.answers import Answers
from services.generator.jobs.ledger import Ledger, has_answer, has_ended
from services.generator.jobs.waiting import WaitingJobs
from services.generator.orders import AcceptedJob, Order, work_of
from services.generator.problems import problem_of
from sparsesmith.errors import Conflict, SparsesmithError, Unavailable
from sparsesmith.operations import Problem as OrderedProblem
from sparsesmith.transport.job_store import Asker
from sparsesmith.transport.traces import NO_TRACES, Traces
from sparsesmith_proto.api import Cancelled, Failed, JobState, JobStatus, Problem, Queued

log = logging.getLogger(__name__)

SMALL_WORK = 64 * 600_000
"""Where there are several runners one in four takes only jobs of at most this much: small ones wait for no large one to
end. 64 candidates on a matrix of half a million entries."""

OUTAGE_PAUSE_S = 2.0
DOUBTS_S = 2.0
"""How often it is looked what became of jobs in doubt."""
RECORD_PATIENCE_S = 5.0


@dataclass(frozen=True)
class JobLimits:
    """How much work the service takes on."""

    max_waiting: int
    max_running: int


class Jobs:
    """The queue and its runners. All methods belong to one event loop."""

    def __init__(self, ledger: Ledger, answers: Answers, limits: JobLimits, traces: Traces = NO_TRACES) -> None:
        self._traces = traces
        self._ledger = ledger
        self._answers = answers
        self._limits = limits
        self._waiting = WaitingJobs()
        self._running: dict[str, asyncio.Task[JobState]] = {}
        self._clients: dict[str, str] = {}
        """Of the running jobs."""
        self._arrived = asyncio.Event()
        self._reserved = 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    async def run(self) -> None:
        """Take up what an earlier service left, then serve until cancelled. A cancelled job stays unfinished."""
        await self._resume()
        async with asyncio.TaskGroup() as runners:
            runners.create_task(self._clear_doubts())
            for number in range(self._limits.max_running):
                runners.create_task(self._run_jobs(SMALL_WORK if number % 4 == 1 else math.inf))

    async def accept(
        self, order: Order, problem: OrderedProblem, idempotency_key: str | None, asker: Asker
    ) -> JobStatus:
        """Store the job, then queue it. The same asker, key and order give the same job; askers are served in turns.

        Raises Unavailable when the queue is full and the key is new, Conflict for a key that stands for another order,
        QuotaExceeded.
        """
        is_full = len(self._waiting) + self._reserved >= self._limits.max_waiting
        if is_full and await self._ledger.earlier(idempotency_key, asker) is None:
            raise Unavailable(
                f"{len(self._waiting)} jobs are waiting already", field="queue", limit=self._limits.max_waiting
            )
        order, began_s = order.model_copy(update={"work": work_of(order, problem)}), time.time()
        self._reserved += 1
        try:
            job, is_new = await self._ledger.accept(order, problem, idempotency_key, len(self._waiting), asker)
        finally:
            self._reserved -= 1
        if is_new:
            self._enqueue(job, asker.turn)
            self._traces.told("accept", job.job_id, began_s, {"kind": order.kind})
        return await self.status(job.job_id)

    async def status(self, job_id: str) -> JobStatus:
        """Raises NotFound."""
        status = await self._ledger.status(job_id)
        if isinstance(status.status, Queued):
            return status.model_copy(update={"status": Queued(position=self._waiting.position(job_id))})
        return status

    async def answered(self, job_id: str, wait_s: float, *, best: bool) -> JobStatus:
        """The status once there is an answer (`best`: once the job has ended), or as it is when the time is up."""
        try:
            async with asyncio.timeout(wait_s):
                async for event in self._ledger.events(job_id, after=None):
                    if not best and has_answer(event.status.status):
                        break
        except TimeoutError:
            pass
        return await self.status(job_id)

    async def cancel(self, job_id: str, asker: Asker) -> None:
        """Raises Conflict for a job that has ended, NotFound."""
        job = await self._ledger.job(job_id)
        state = (await self._ledger.status(job_id)).status
        if has_ended(state):
            raise Conflict(f"job {job_id} has ended already: {state.state}", field="state", value=state.state)
        self._waiting.remove(job_id)
        if (running := self._running.get(job_id)) is not None:
            if not running.cancel():
                raise Conflict(f"job {job_id} ended just now", field="state")
            await asyncio.wait([running])
        if not await self._ledger.record(job, Cancelled(), asker):
            raise Conflict(f"job {job_id} ended just now", field="state")

    async def _resume(self) -> None:
        """What an earlier service left."""
        while True:
            try:
                await self._take_up(await self._ledger.unfinished())
                return
            except Unavailable as error:
                log.warning("unfinished jobs cannot be read yet: %s", error)
                await asyncio.sleep(OUTAGE_PAUSE_S)

    async def _clear_doubts(self) -> None:
        """Take up jobs of which an outage of the store cut us off: written, or not ended, though it did not say so."""
        while True:
            await asyncio.sleep(DOUBTS_S)
            if doubts := set(self._ledger.doubts):
                with suppress(Unavailable):  # Looked at again.
                    await self._take_up([each for each in await self._ledger.unfinished() if each in doubts])
                    self._ledger.doubts -= doubts

    async def _take_up(self, job_ids: Sequence[str]) -> None:
        """Queue stored jobs that nobody has in hand. Raises Unavailable, with some of them queued."""
        num_taken = 0
        for position, job_id in enumerate(job_ids):
            if self._has(job_id) or (job := await self._ledger.taken_up(job_id)) is None:
                continue
            if await self._record(job, Queued(position=position)):
                self._enqueue(job, client="")
                num_taken += 1
        if num_taken:
            log.info("took up %d unfinished jobs", num_taken)

    def _has(self, job_id: str) -> bool:
        return job_id in self._waiting or job_id in self._running

    def _enqueue(self, job: AcceptedJob, client: str) -> None:
        self._waiting.add(job, client)
        self._arrived.set()

    async def _run_jobs(self, most_work: float) -> None:
        while True:
            while (taken := self._waiting.take(self._clients.values(), most_work)) is None:
                self._arrived.clear()
                await self._arrived.wait()
            job, self._clients[taken[0].job_id] = taken
            try:
                await self._run_job(job)
            finally:
                del self._clients[job.job_id]

    async def _run_job(self, job: AcceptedJob) -> None:
        work = asyncio.create_task(self._outcome(job))
        self._running[job.job_id] = work
        try:
            await asyncio.wait([work])
            if not work.cancelled():
                await self._record(job, work.result())
                self._trace(job, work.result())
        finally:
            # Reached by the service's stop as well: the job is then left unfinished in the ledger.
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            del self._running[job.job_id]

    def _trace(self, job: AcceptedJob, state: JobState) -> None:
        attributes = {"kind": job.order.kind, "operation": job.order.workload.operation, "state": state.state}
        self._traces.job_ended(job.job_id, job.accepted_at.timestamp(), attributes)

    async def _record(self, job: AcceptedJob, state: JobState) -> bool:
        """Through an outage of the store: a state that ends a job must not be lost. False: it has ended otherwise."""
        while True:
            try:
                return await self._ledger.record(job, state)
            except Unavailable as error:
                log.warning("state %s of job %s waits for Redis: %s", state.state, job.job_id, error)
                await asyncio.sleep(OUTAGE_PAUSE_S)

    async def _outcome(self, job: AcceptedJob) -> JobState:
        async def tell(state: JobState) -> None:
            recording = asyncio.ensure_future(self._record(job, state))
            try:
                await asyncio.shield(recording)
            finally:
                # Cancelled or not, no later state may be overtaken by this one.
                await asyncio.wait([recording], timeout=RECORD_PATIENCE_S)
                recording.cancel()

        try:
            problem = await self._ledger.problem(job.order.workload)
            return await self._answers.answer(job, problem, tell)
        except SparsesmithError as error:
            log.warning("job %s failed: %s", job.job_id, error)
            return Failed(problem=problem_of(error))
        except Exception:
            # The outermost handler of a job: a defect of ours ends one job, and is told as what it is.
            log.exception("job %s failed", job.job_id)
            detail = "the service failed on this job; its log says more"
            return Failed(problem=Problem(type="about:blank", title="Internal Server Error", status=500, detail=detail))
