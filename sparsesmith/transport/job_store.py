"""The generator's accepted jobs: what was asked, how far it is, and every event on the way.

A job is stored before its acceptance is told, so that it is answered even if the generator is killed right after.
"""

import time
from dataclasses import dataclass

import redis

from sparsesmith.errors import Conflict, NotFound
from sparsesmith.transport.connection import MAX_BLOCK_MS, Pipeline, Redis, answering
from sparsesmith_proto.api import Cancelled, Failed, Finished, Graded, JobStatus

_UNFINISHED = "sparsesmith:jobs:unfinished"
_ALL = "sparsesmith:jobs:all"
MAX_LISTED = 10_000
"""Jobs that are remembered for lists; those that expired drop out as they are met."""
MAX_EVENTS = 1000


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


class JobStore:
    """Jobs by id, those unfinished in the order of acceptance."""

    def __init__(self, connection: Redis, ttl_s: int = 24 * 3600) -> None:
        self._connection = connection
        self._ttl_s = ttl_s

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
                        pipeline.set(_idempotency_key(idempotency), mark, ex=self._ttl_s)
                    text = status.model_dump_json()
                    pipeline.hset(_job_key(status.job_id), mapping={"request": request, "status": text})
                    accepted = {status.job_id: time.time()}
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
        job_key = _job_key(status.job_id)
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            while True:
                try:
                    pipeline.watch(job_key)
                    if pipeline.zscore(_UNFINISHED, status.job_id) is None:
                        # Ended: perhaps by this very call, whose answer an outage cut off.
                        return bool(pipeline.hget(job_key, "status") == text.encode())
                    pipeline.multi()
                    self._write(pipeline, status, text)
                    pipeline.execute()
                    return True
                except redis.exceptions.WatchError:
                    continue

    def _write(self, pipeline: Pipeline, status: JobStatus, text: str) -> None:
        job_key, events_key = _job_key(status.job_id), _events_key(status.job_id)
        pipeline.hset(job_key, "status", text)
        pipeline.xadd(events_key, {"status": text}, maxlen=MAX_EVENTS)
        if isinstance(status.status, Finished | Graded | Failed | Cancelled):
            pipeline.zrem(_UNFINISHED, status.job_id)
            pipeline.expire(job_key, self._ttl_s)
            pipeline.expire(events_key, self._ttl_s)

    def unfinished(self) -> list[str]:
        """Ids of the jobs without a final state, in the order of acceptance. Raises Unavailable."""
        with answering():
            return [job_id.decode() for job_id in self._connection.zrange(_UNFINISHED, 0, -1)]

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
            if self._connection.exists(_job_key(job_id)):
                return True
            self._connection.zrem(_ALL, job_id)
            return False

    def events(self, job_id: str, after: str = "0", block_ms: int = 0) -> list[JobEvent]:
        """Events after an event id (`0`: from the start), waiting up to `block_ms` for the first where there is none.

        Raises NotFound, Unavailable.
        """
        key = _events_key(job_id)
        with answering():
            if not self._connection.exists(key):
                raise NotFound(f"no job {job_id}", field="job_id", value=job_id)
            replies = self._connection.xread({key: after}, block=min(block_ms, MAX_BLOCK_MS) or None)
        return [
            JobEvent(event_id.decode(), JobStatus.model_validate_json(fields[b"status"]))
            for _, entries in replies or []
            for event_id, fields in entries
        ]

    def request_cancel(self, job_id: str) -> None:
        """Ask whoever works on the job to stop. Raises NotFound, Unavailable."""
        self._field(job_id, "status")
        with answering():
            self._connection.hset(_job_key(job_id), "cancel", "1")

    def is_cancel_requested(self, job_id: str) -> bool:
        """Raises Unavailable."""
        with answering():
            return bool(self._connection.hexists(_job_key(job_id), "cancel"))

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
            found = self._connection.hget(_job_key(job_id), field)
        if found is None:
            raise NotFound(f"no job {job_id}", field="job_id", value=job_id)
        return bytes(found).decode()


def _job_key(job_id: str) -> str:
    return f"sparsesmith:job:{job_id}"


def _events_key(job_id: str) -> str:
    return f"sparsesmith:job:{job_id}:events"


def _idempotency_key(idempotency: IdempotencyKey) -> str:
    return f"sparsesmith:idempotency:{idempotency.key}"
