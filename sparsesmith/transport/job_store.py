"""The generator's accepted jobs: what was asked, how far it is, and every event on the way.

A job is stored before its acceptance is told, so that it is answered even if the generator is killed right after. One
that has ended stays for a time, as one of a bounded number; of one that went, it is known for long when it did.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import redis

from sparsesmith.errors import Conflict, NotFound
from sparsesmith.transport.connection import MAX_BLOCK_MS, Pipeline, Redis, answering
from sparsesmith_proto.api import Cancelled, Failed, Finished, Graded, JobStatus

_UNFINISHED = "sparsesmith:jobs:unfinished"
_ALL = "sparsesmith:jobs:all"
_GOES = "sparsesmith:jobs:goes"
"""Jobs that have ended, by when they go or went."""
DAY_S = 24 * 3600
MAX_LISTED = 10_000
"""Jobs that are remembered for lists; those that expired drop out as they are met."""
MAX_GONE = 100_000
"""Jobs of which it is known when they went."""
MAX_EVENTS = 1000
EVENTS_S = DAY_S
"""The way to a job's end is told this long; then only the end."""
KEY_S = DAY_S
"""How long an idempotency key stands for its job."""
FIRST_EVENT = "0-1"


@dataclass(frozen=True)
class JobEvent:
    """One state of a job; ids ascend and survive a reconnection."""

    event_id: str
    status: JobStatus


@dataclass(frozen=True)
class IdempotencyKey:
    """A client's name for a request, and a fingerprint of what the request said."""

    key: str
    fingerprint: str


@dataclass(frozen=True)
class History:
    """How long jobs that have ended are kept, and how many."""

    days: int = 30
    max_jobs: int = 10_000
    """Beyond it the first go that ended first."""

    @property
    def seconds(self) -> int:
        return self.days * DAY_S


class JobStore:
    """Jobs by id, those unfinished in the order of acceptance."""

    def __init__(
        self, connection: Redis, history: History | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock`: seconds since 1970; says when jobs go."""
        self._connection = connection
        self._history = history or History()
        self._clock = clock

    def accept(self, status: JobStatus, request: str, idempotency: IdempotencyKey | None = None) -> str:
        """Store a job with its request (any text) and return its id: that of the earlier job for a repeated key.

        Raises Conflict for a key that was used with another request, Unavailable.
        """
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            while True:
                try:
                    earlier = self._earlier(pipeline, idempotency)
                    if earlier is not None:
                        return earlier
                    pipeline.multi()
                    if idempotency is not None:
                        mark = f"{status.job_id} {idempotency.fingerprint}"
                        pipeline.set(_idempotency_key(idempotency), mark, ex=KEY_S)
                    text = status.model_dump_json()
                    pipeline.hset(_job_key(status.job_id), mapping={"request": request, "status": text})
                    accepted = {status.job_id: self._clock()}
                    pipeline.zadd(_UNFINISHED, accepted)
                    pipeline.zadd(_ALL, accepted)
                    pipeline.zremrangebyrank(_ALL, 0, -MAX_LISTED - 1)
                    pipeline.xadd(_events_key(status.job_id), {"status": text}, maxlen=MAX_EVENTS)
                    pipeline.execute()
                    return status.job_id
                except redis.exceptions.WatchError:
                    continue

    def request(self, job_id: str) -> str:
        """What was asked. Raises NotFound, Unavailable."""
        return self._field(job_id, "request")

    def status(self, job_id: str) -> JobStatus:
        """How far it is. Raises NotFound, Unavailable."""
        return JobStatus.model_validate_json(self._field(job_id, "status"))

    def update(self, status: JobStatus) -> bool:
        """A new state, whose event is written once; a final one takes the job off the unfinished list and starts its
        expiry. False, and nothing changed, for a job that has ended in another state. Raises Unavailable.
        """
        text = status.model_dump_json()
        job_key, has_ended = _job_key(status.job_id), _has_ended(status)
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            while True:
                try:
                    pipeline.watch(job_key)
                    if pipeline.zscore(_UNFINISHED, status.job_id) is None:
                        # Ended: perhaps by this very call, whose answer an outage cut off.
                        return bool(pipeline.hget(job_key, "status") == text.encode())
                    pipeline.multi()
                    pipeline.hset(job_key, "status", text)
                    pipeline.xadd(_events_key(status.job_id), {"status": text}, maxlen=MAX_EVENTS)
                    if has_ended:
                        self._let_go(pipeline, status.job_id)
                    pipeline.execute()
                    break
                except redis.exceptions.WatchError:
                    continue
        if has_ended:
            self._make_room()
        return True

    def _let_go(self, pipeline: Pipeline, job_id: str) -> None:
        """A job that has ended goes after a time."""
        pipeline.zrem(_UNFINISHED, job_id)
        pipeline.zadd(_GOES, {job_id: self._clock() + self._history.seconds})
        pipeline.expire(_job_key(job_id), self._history.seconds)
        pipeline.expire(_events_key(job_id), min(EVENTS_S, self._history.seconds))

    def unfinished(self) -> list[str]:
        """Ids of the jobs without a final state, in the order of acceptance. Raises Unavailable.

        They are listed from now on: releases that kept no list may have accepted them.
        """
        with answering():
            accepted = self._connection.zrange(_UNFINISHED, 0, -1, withscores=True)
            if accepted:
                self._connection.zadd(_ALL, dict(accepted), nx=True)
            return [job_id.decode() for job_id, _ in accepted]

    def newest(self, limit: int, before: str | None = None) -> list[str]:
        """Ids of up to `limit` jobs, the newest first; those accepted before a job, where one is named.

        Raises NotFound for a job that is in no list, Unavailable.
        """
        with answering():
            first = 0
            if before is not None:
                rank = self._connection.zrevrank(_ALL, before)
                if rank is None:
                    raise NotFound(f"no job {before} in the list", field="before", value=before)
                first = int(rank) + 1
            return [job_id.decode() for job_id in self._connection.zrevrange(_ALL, first, first + limit - 1)]

    def keeps(self, job_id: str) -> bool:
        """Whether a job is still stored; one that is not leaves the list. Raises Unavailable."""
        with answering():
            if not self._has_gone(job_id) and self._connection.exists(_job_key(job_id)):
                return True
            self._connection.zrem(_ALL, job_id)
            return False

    def events(self, job_id: str, after: str = "0", block_ms: int = 0) -> list[JobEvent]:
        """Events after an event id (`0`: from the start), waiting up to `block_ms` for the first where there is none.
        Of a job that ended long ago there is one, its end.

        Raises NotFound, Unavailable.
        """
        key = _events_key(job_id)
        with answering():
            if not self._connection.exists(key):
                end = JobEvent(FIRST_EVENT, self.status(job_id))
                return [end] if after in ("0", "0-0") else []
            replies = self._connection.xread({key: after}, block=min(block_ms, MAX_BLOCK_MS) or None)
        return [
            JobEvent(event_id.decode(), JobStatus.model_validate_json(fields[b"status"]))
            for _, entries in replies or []
            for event_id, fields in entries
        ]

    def _earlier(self, pipeline: Pipeline, idempotency: IdempotencyKey | None) -> str | None:
        if idempotency is None:
            return None
        pipeline.watch(_idempotency_key(idempotency))
        mark = pipeline.get(_idempotency_key(idempotency))
        if mark is None:
            return None
        job_id, fingerprint = mark.decode().split()
        if fingerprint != idempotency.fingerprint:
            raise Conflict(
                f"Idempotency-Key {idempotency.key!r} was used with another request",
                field="Idempotency-Key",
                value=idempotency.key,
            )
        return str(job_id)

    def _field(self, job_id: str, field: str) -> str:
        with answering():
            found = None if self._has_gone(job_id) else self._connection.hget(_job_key(job_id), field)
            goes = self._connection.zscore(_GOES, job_id) if found is None else None
        if found is None:
            raise _no_job(job_id, goes)
        return bytes(found).decode()

    def _has_gone(self, job_id: str) -> bool:
        """Whether its time is over; what is left of it goes."""
        goes = self._connection.zscore(_GOES, job_id)
        if goes is None or goes > self._clock():
            return False
        self._connection.delete(*_keys(job_id))
        return True

    def _make_room(self) -> None:
        """The jobs that end their time first go, beyond the number that is kept. Raises Unavailable."""
        with answering():
            now = self._clock()
            excess = self._connection.zcount(_GOES, f"({now}", "+inf") - self._history.max_jobs
            if excess <= 0:
                return
            for job_id in self._connection.zrangebyscore(_GOES, f"({now}", "+inf", start=0, num=excess):
                self._connection.delete(*_keys(job_id.decode()))
                self._connection.zadd(_GOES, {job_id: now})
            self._connection.zremrangebyrank(_GOES, 0, -self._history.max_jobs - MAX_GONE - 1)


def candidates_key(job_id: str) -> str:
    """Of what was tried for a job (`candidate_store`); it goes with the job."""
    return f"sparsesmith:job:{job_id}:candidates"


def _no_job(job_id: str, goes: float | None) -> NotFound:
    """`goes`: when it went, in seconds since 1970, where that is known."""
    message = f"no job {job_id}"
    if goes is not None:
        message += f": it went on {datetime.fromtimestamp(goes, UTC):%Y-%m-%d at %H:%M} UTC"
    return NotFound(message, field="job_id", value=job_id)


def _keys(job_id: str) -> tuple[str, ...]:
    return _job_key(job_id), _events_key(job_id), candidates_key(job_id)


def _has_ended(status: JobStatus) -> bool:
    return isinstance(status.status, Finished | Graded | Failed | Cancelled)


def _job_key(job_id: str) -> str:
    return f"sparsesmith:job:{job_id}"


def _events_key(job_id: str) -> str:
    return f"sparsesmith:job:{job_id}:events"


def _idempotency_key(idempotency: IdempotencyKey) -> str:
    return f"sparsesmith:idempotency:{idempotency.key}"
