"""Accepted jobs and their states, kept in the job store; whoever waits in this process is woken at once."""

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import assert_never

from pydantic import TypeAdapter

from services.generator.orders import AcceptedJob, Order, directions_of, fingerprint
from sparsesmith.errors import Conflict, NotFound, QuotaExceeded, Unavailable
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith.transport.job_store import Asker, IdempotencyKey, JobEvent, JobStore, unreadable
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith_proto.api import (
    Cancelled,
    Failed,
    Finished,
    Graded,
    InstantKernel,
    JobPage,
    JobState,
    JobStatus,
    JobSummary,
    KernelReport,
    Queued,
    Running,
    TunedAnswer,
)
from sparsesmith_proto.kernel import Workload

log = logging.getLogger(__name__)

WAKE_S = 15.0
"""The store is looked at this often though nothing was heard in this process."""

FROM_THE_START = "0"
EVENT_ID = re.compile(r"^\d{1,19}(-\d{1,19})?$")

_ORDERS: TypeAdapter[Order] = TypeAdapter(Order)


class Ledger:
    """The store's calls block and run in threads. States of a job are recorded by its one runner, in order."""

    def __init__(self, store: JobStore, patterns: PatternStore) -> None:
        self._store = store
        self._patterns = patterns
        self._news: dict[str, asyncio.Event] = {}
        self.doubts: set[str] = set()
        """Jobs that are stored or not, ended or not: the store was asked to write it, and its answer did not come."""

    async def accept(
        self, order: Order, problem: Problem, key: str | None, position: int, asker: Asker
    ) -> tuple[AcceptedJob, bool]:
        """Store the job, and its matrix if it has one; the asker's job that the key stands for already, and False,
        where there is one.

        Raises Conflict for a key that stands for another order, QuotaExceeded, Unavailable, also where the store is
        full.
        """
        job = AcceptedJob(secrets.token_hex(12), datetime.now(UTC), order)
        idempotency = None if key is None else IdempotencyKey(key, fingerprint(order))
        status = job.status(Queued(position=position))
        await self._put(job, problem)
        text, detail = order.model_dump_json(), order.describe()
        try:
            job_id = await asyncio.to_thread(self._store.accept, status, text, idempotency, asker, detail)
        except (Conflict, QuotaExceeded):
            await self._release(job)
            raise
        except Unavailable:
            self.doubts.add(job.job_id)
            raise
        if job_id == job.job_id:
            return job, True
        await self._release(job)
        return await self.job(job_id), False

    async def earlier(self, key: str | None, asker: Asker) -> Order | None:
        """What the asker's key stands for already; None for what another release stored. Raises Unavailable."""
        if key is None:
            return None
        try:
            job_id = await asyncio.to_thread(self._store.job_of, key, asker)
            return None if job_id is None else (await self.job(job_id)).order
        except NotFound:
            return None

    async def _put(self, job: AcceptedJob, problem: Problem) -> None:
        try:
            for each in await asyncio.to_thread(directions_of, job.order, problem):
                if each.matrix is not None:
                    await asyncio.to_thread(self._patterns.put, each.matrix, job.job_id)
                if each.values is not None:
                    await asyncio.to_thread(self._patterns.put_values, each.values, job.job_id)
        except Unavailable:
            await self._release(job)
            raise

    async def job(self, job_id: str) -> AcceptedJob:
        """Raises NotFound, also for what cannot be read; Unavailable."""
        request = await asyncio.to_thread(self._store.request, job_id)
        status = await self.status(job_id)
        try:
            return AcceptedJob(job_id, datetime.fromisoformat(status.accepted_at), _ORDERS.validate_json(request))
        except ValueError as error:
            raise unreadable(job_id) from error

    async def page(self, limit: int, before: str | None, owner: str | None = None) -> JobPage:
        """Up to `limit` jobs, or of those of one key, the newest first; those accepted before a job, where one is
        named.

        Jobs that expired meanwhile, or that another release stored, are left out. Raises NotFound, Unavailable.
        """
        while job_ids := await asyncio.to_thread(self._store.newest, limit, before, owner):
            stored = [job_id for job_id in job_ids if await asyncio.to_thread(self._store.keeps, job_id, owner)]
            if stored:
                jobs = [summary for job_id in stored if (summary := await self._summary(job_id)) is not None]
                return JobPage(jobs=tuple(jobs), next_before=stored[-1] if len(job_ids) == limit else None)
        return JobPage(jobs=(), next_before=None)

    async def unfinished(self) -> list[str]:
        """Their ids, in the order of acceptance. Raises Unavailable."""
        return await asyncio.to_thread(self._store.unfinished)

    async def taken_up(self, job_id: str) -> AcceptedJob | None:
        """An unfinished job, its matrix held; None for one that another release stored and this one cannot read.

        Raises Unavailable.
        """
        try:
            job = await self.job(job_id)
            for workload in job.order.directions:
                await asyncio.to_thread(self._patterns.hold, workload, job_id)
        except NotFound as error:
            log.error("unfinished job %s cannot be taken up: %s", job_id, error)
            return None
        return job

    async def pattern(self, digest: str) -> Pattern:
        """Raises NotFound, Unavailable."""
        return await asyncio.to_thread(self._patterns.get, digest)

    async def problem(self, workload: Workload) -> Problem:
        """The workload with its matrix, and its values where it fixes them. Raises NotFound, Unavailable."""
        return await asyncio.to_thread(self._patterns.problem, workload)

    async def status(self, job_id: str) -> JobStatus:
        """Raises NotFound, Unavailable."""
        return await asyncio.to_thread(self._store.status, job_id)

    async def _summary(self, job_id: str) -> JobSummary | None:
        try:
            job, state = await self.job(job_id), (await self.status(job_id)).status
        except NotFound as error:
            log.warning("job %s is not listed: %s", job_id, error)
            return None
        return JobSummary(
            job_id=job_id,
            accepted_at=job.accepted_at.isoformat(),
            kind=job.order.kind,
            workload=job.order.workload,
            state=state.state,
            best_speedup=best_speedup(state),
        )

    async def record(self, job: AcceptedJob, state: JobState, canceller: Asker | None = None) -> bool:
        """A new state, told to all who wait; a job that ends without files for its user gives its matrix back.

        False, and nothing done, for a job that has ended in another state. `canceller`: who ended it, if somebody did.
        Raises Unavailable.
        """
        try:
            if not await asyncio.to_thread(self._store.update, job.status(state), canceller):
                return False
        except Unavailable:
            self.doubts.add(job.job_id)
            raise
        if has_ended(state) and not isinstance(state, Finished):
            await self._release(job)
        if (waited_for := self._news.pop(job.job_id, None)) is not None:
            waited_for.set()
        return True

    async def _release(self, job: AcceptedJob) -> None:
        """An outage of the store leaves the matrix to its age."""
        try:
            for workload in job.order.directions:
                await asyncio.to_thread(self._patterns.release, workload, job.job_id)
        except Unavailable as error:
            log.warning("the matrix of job %s stays for a while: %s", job.job_id, error)

    async def events(self, job_id: str, after: str | None) -> AsyncIterator[JobEvent]:
        """Events after the given id (None: from the start) up to the job's last. Raises NotFound, Unavailable."""
        seen = after if after is not None and EVENT_ID.match(after) else FROM_THE_START
        while True:
            news = self._news.setdefault(job_id, asyncio.Event())
            ended = has_ended((await self.status(job_id)).status)
            for event in await asyncio.to_thread(self._store.events, job_id, seen):
                seen = event.event_id
                yield event
                if has_ended(event.status.status):
                    return
            if ended:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), WAKE_S)


def best_speedup(state: JobState) -> float | None:
    """Over the best baseline, of what a job has found; None where nothing is faster, or passed."""
    match state:
        case Running(best_speedup=speedup):
            return speedup
        case Finished(report=KernelReport(answer=TunedAnswer(speedup_over_best=speedup))):
            return speedup
        case _:
            return None


def has_answer(state: JobState) -> bool:
    """Whether there is something to use: at the end, or a kernel that was handed out before the search."""
    match state:
        case Running(instant=InstantKernel(state="checked" | "confirmed")):
            return True
        case Running(so_far=KernelReport()):  # The kernel was withdrawn, and another stands.
            return True
        case _:
            return has_ended(state)


def has_ended(state: JobState) -> bool:
    match state:
        case Queued() | Running():
            return False
        case Finished() | Graded() | Failed() | Cancelled():
            return True
        case _:
            assert_never(state)
