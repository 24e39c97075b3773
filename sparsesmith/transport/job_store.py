"""The generator's accepted jobs: what was asked, how far it is, and every event on the way.

A job is stored before its acceptance is told, so that it is answered even if the generator is killed right after. One
that has ended stays for a time, as one of a bounded number; of one that went, it is known for long when it did.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import redis
from pydantic import ValidationError

from sparsesmith.errors import Conflict, NotFound
from sparsesmith.transport.accounts import check_new_job, unfinished_key, used
from sparsesmith.transport.audit import write_entry
from sparsesmith.transport.connection import MAX_BLOCK_MS, Pipeline, Redis, answering, text_of, texts_of
from sparsesmith_proto.api import Cancelled, Failed, Finished, Graded, JobStatus
from sparsesmith_proto.keys import ApiKey, AuditEntry

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
MAX_DETAIL = 200
"""Characters that a line of the audit log says of a job."""


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
class Asker:
    """Who asks for something to be done with a job."""

    client: str = ""
    """Its address."""
    key: ApiKey | None = None
    """None: the service asks for no keys."""

    @property
    def owner(self) -> str | None:
        """Of what it asks for: the key's id."""
        return None if self.key is None else self.key.key_id

    @property
    def turn(self) -> str:
        """Whose turn its jobs take."""
        return self.owner or self.client


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

    def accept(
        self,
        status: JobStatus,
        request: str,
        idempotency: IdempotencyKey | None = None,
        asker: Asker | None = None,
        detail: str = "",
    ) -> str:
        """Store a job with its request (any text) and return its id: that of the asker's earlier job for a repeated
        idempotency key. `detail`: what the audit log says of it.

        Raises Conflict for a key that was used with another request, QuotaExceeded, Unavailable.
        """
        asker = asker or Asker()
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            while True:
                try:
                    earlier = self._earlier(pipeline, idempotency, asker)
                    if earlier is not None:
                        return earlier
                    self._check_quotas(pipeline, asker)
                    pipeline.multi()
                    if idempotency is not None:
                        mark = f"{status.job_id} {idempotency.fingerprint}"
                        pipeline.set(_idempotency_key(idempotency.key, asker), mark, ex=KEY_S)
                    text = status.model_dump_json()
                    pipeline.hset(_job_key(status.job_id), mapping={"request": request, "status": text})
                    self._enlist(pipeline, status.job_id, asker)
                    pipeline.xadd(_events_key(status.job_id), {"status": text}, maxlen=MAX_EVENTS)
                    write_entry(pipeline, self._entry("job_accepted", status.job_id, asker, detail))
                    pipeline.execute()
                    return status.job_id
                except redis.exceptions.WatchError:
                    continue

    def job_of(self, key: str, asker: Asker) -> str | None:
        """The job that the asker's idempotency key stands for, whatever was asked. Raises Unavailable."""
        with answering():
            mark = _mark_of(self._connection.get(_idempotency_key(key, asker)))
        return None if mark is None else mark[0]

    def _check_quotas(self, pipeline: Pipeline, asker: Asker) -> None:
        """What is looked at is watched: two requests at once are not both the last."""
        if asker.key is not None:
            pipeline.watch(unfinished_key(asker.key.key_id))
            now = self._clock()
            check_new_job(asker.key, used(pipeline, asker.key.key_id, now), now)

    def _enlist(self, pipeline: Pipeline, job_id: str, asker: Asker) -> None:
        accepted = {job_id: self._clock()}
        pipeline.zadd(_UNFINISHED, accepted)
        lists = [_ALL]
        if asker.owner is not None:
            pipeline.hset(_job_key(job_id), "owner", asker.owner)
            pipeline.zadd(unfinished_key(asker.owner), accepted)
            lists += [_list_of(asker.owner), _known_of(asker.owner)]
        for name in lists:
            pipeline.zadd(name, accepted)
            pipeline.zremrangebyrank(name, 0, -MAX_LISTED - 1)

    def _entry(
        self, action: Literal["job_accepted", "job_cancelled"], job_id: str, asker: Asker, detail: str = ""
    ) -> AuditEntry:
        return AuditEntry(
            at=datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds"),
            action=action,
            key_id=asker.owner,
            name=None if asker.key is None else asker.key.name,
            client=asker.client or None,
            job_id=job_id,
            detail=detail[:MAX_DETAIL],
        )

    def is_owned(self, job_id: str, owner: str) -> bool:
        """Whether a key asked for a job, also for one that went. Raises Unavailable."""
        with answering():
            found = self._connection.hget(_job_key(job_id), "owner")
            if found is None:
                return self._connection.zscore(_known_of(owner), job_id) is not None
        return bool(found == owner.encode())

    def request(self, job_id: str) -> str:
        """What was asked. Raises NotFound, Unavailable."""
        return self._field(job_id, "request")

    def status(self, job_id: str) -> JobStatus:
        """How far it is. Raises NotFound, also for what cannot be read; Unavailable."""
        try:
            return JobStatus.model_validate_json(self._field(job_id, "status"))
        except ValidationError as error:
            raise unreadable(job_id) from error

    def update(self, status: JobStatus, canceller: Asker | None = None) -> bool:
        """A new state, whose event is written once; a final one takes the job off the unfinished lists and starts its
        expiry. False, and nothing changed, for a job that has ended in another state. `canceller`: who ended it, for
        the audit log. Raises Unavailable.
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
                    owner = pipeline.hget(job_key, "owner")
                    pipeline.multi()
                    pipeline.hset(job_key, "status", text)
                    pipeline.xadd(_events_key(status.job_id), {"status": text}, maxlen=MAX_EVENTS)
                    if has_ended:
                        self._let_go(pipeline, status.job_id, owner)
                    if canceller is not None:
                        write_entry(pipeline, self._entry("job_cancelled", status.job_id, canceller))
                    pipeline.execute()
                    break
                except redis.exceptions.WatchError:
                    continue
        if has_ended:
            self._make_room()
        return True

    def _let_go(self, pipeline: Pipeline, job_id: str, owner: bytes | None) -> None:
        """A job that has ended goes after a time."""
        pipeline.zrem(_UNFINISHED, job_id)
        if owner is not None:
            pipeline.zrem(unfinished_key(owner.decode()), job_id)
        pipeline.zadd(_GOES, {job_id: self._clock() + self._history.seconds})
        pipeline.expire(_job_key(job_id), self._history.seconds)
        pipeline.expire(_events_key(job_id), min(EVENTS_S, self._history.seconds))

    def unfinished(self) -> list[str]:
        """Ids of the jobs without a final state, in the order of acceptance. Raises Unavailable.

        They are listed from now on: releases that kept no list may have accepted them.
        """
        with answering():
            while True:
                accepted = dict(self._connection.zrange(_UNFINISHED, 0, -1, withscores=True))
                job_ids = texts_of(self._connection, _UNFINISHED, accepted)
                if job_ids is not None:
                    break
            if accepted:
                self._connection.zadd(_ALL, accepted, nx=True)
            return job_ids

    def newest(self, limit: int, before: str | None = None, owner: str | None = None) -> list[str]:
        """Ids of up to `limit` jobs, or of those of one key, the newest first; those accepted before a job, where one
        is named.

        Raises NotFound for a job that is in no list, Unavailable.
        """
        name = _ALL if owner is None else _list_of(owner)
        with answering():
            while True:
                first = 0 if before is None else self._rank(name, before) + 1
                found = self._connection.zrevrange(name, first, first + limit - 1)
                job_ids = texts_of(self._connection, name, found)
                if job_ids is not None:
                    return job_ids

    def _rank(self, name: str, job_id: str) -> int:
        """From the newest."""
        rank = self._connection.zrevrank(name, job_id)
        if rank is None:
            raise NotFound(f"no job {job_id} in the list", field="before", value=job_id)
        return int(rank)

    def keeps(self, job_id: str, owner: str | None = None) -> bool:
        """Whether a job is still stored; one that is not leaves the lists. Raises Unavailable."""
        with answering():
            if not self._has_gone(job_id) and self._connection.exists(_job_key(job_id)):
                return True
            for name in [_ALL] if owner is None else [_ALL, _list_of(owner)]:
                self._connection.zrem(name, job_id)
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
        told = [_event_of(event_id, fields) for _, entries in replies or [] for event_id, fields in entries]
        return [event for event in told if event is not None]

    def _earlier(self, pipeline: Pipeline, idempotency: IdempotencyKey | None, asker: Asker) -> str | None:
        if idempotency is None:
            return None
        name = _idempotency_key(idempotency.key, asker)
        pipeline.watch(name)
        mark = _mark_of(pipeline.get(name))
        if mark is None:
            return None
        job_id, fingerprint = mark
        if fingerprint != idempotency.fingerprint:
            raise Conflict(
                f"Idempotency-Key {idempotency.key!r} was used with another request",
                field="Idempotency-Key",
                value=idempotency.key,
            )
        return job_id

    def _field(self, job_id: str, field: str) -> str:
        with answering():
            found = None if self._has_gone(job_id) else self._connection.hget(_job_key(job_id), field)
            goes = self._connection.zscore(_GOES, job_id) if found is None else None
        if found is None:
            raise _no_job(job_id, goes)
        if (text := text_of(found)) is None:
            raise unreadable(job_id)
        return text

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
            found = self._connection.zrangebyscore(_GOES, f"({now}", "+inf", start=0, num=excess)
            for job_id in texts_of(self._connection, _GOES, found) or []:
                self._connection.delete(*_keys(job_id))
                self._connection.zadd(_GOES, {job_id: now})
            self._connection.zremrangebyrank(_GOES, 0, -self._history.max_jobs - MAX_GONE - 1)


def candidates_key(job_id: str) -> str:
    """Of what was tried for a job (`candidate_store`); it goes with the job."""
    return f"sparsesmith:job:{job_id}:candidates"


def _mark_of(mark: bytes | None) -> tuple[str, str] | None:
    """What a key stands for: a job and a request's fingerprint; None also for what cannot be read."""
    parts = [] if mark is None else (text_of(mark) or "").split()
    return (parts[0], parts[1]) if len(parts) == 2 else None


def _event_of(event_id: bytes, fields: dict[bytes, bytes]) -> JobEvent | None:
    """None for one that cannot be read."""
    try:
        return JobEvent(event_id.decode(), JobStatus.model_validate_json(fields.get(b"status", b"")))
    except ValidationError:
        return None


def unreadable(job_id: str) -> NotFound:
    """Of a job that is there."""
    message = f"job {job_id} cannot be read: another release stored it, or it was damaged"
    return NotFound(message, field="job_id", value=job_id)


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


def _idempotency_key(key: str, asker: Asker) -> str:
    """Each owner's are its own."""
    if asker.owner is None:
        return f"sparsesmith:idempotency:{key}"
    return f"sparsesmith:key:{asker.owner}:idempotency:{key}"


def _list_of(owner: str) -> str:
    """Jobs of a key, as `_ALL` has everybody's."""
    return f"sparsesmith:key:{owner}:jobs"


def _known_of(owner: str) -> str:
    """Its last jobs, those that went among them: it is told when they did."""
    return f"sparsesmith:key:{owner}:known"
