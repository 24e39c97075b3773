"""Jobs as they lie in Redis, read within bounds. What cannot be read is set aside with its reason and harms nothing
else: RQ itself would end its worker over a field that it cannot parse, and unpack a few kilobytes to gigabytes.

    sparsesmith:set-aside          list of JSON, the latest first, at most MAX_KEPT
    sparsesmith:set-aside:counts   hash: kind of fault -> how often

Not protected against: whoever can write to Redis can delete and forge as well.
"""

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import redis
from rq import Queue
from rq.exceptions import NoSuchJobError, TimeoutFormatError
from rq.job import Job, JobStatus
from rq.results import Result
from rq.serializers import JSONSerializer

from sparsesmith.transport.connection import Pipeline, Redis, answering

SET_ASIDE = "sparsesmith:set-aside"
COUNTS = "sparsesmith:set-aside:counts"
MAX_KEPT = 100

MAX_PACKED_BYTES = 32 * 2**20
MAX_UNPACKED_BYTES = 64 * 2**20
"""Of a job's call. 256 candidates with programs and tokens of the largest size need half of it."""
MAX_FIELD_BYTES = 64 * 2**10
"""Of every other field."""
MAX_RETRIES = 100
MAX_TIMEOUT_S = 24 * 3600
MAX_SHOWN_CHARACTERS = 100
"""Of a text from outside, in a reason."""

_ID = re.compile(rb"[A-Za-z0-9_-]{1,128}")
_FIELDS = (
    *("data", "status", "origin", "description", "created_at", "enqueued_at", "started_at", "ended_at"),
    *("last_heartbeat", "worker_name", "timeout", "result_ttl", "failure_ttl", "ttl"),
    *("number_of_retries", "retries_left", "enqueue_at_front", "enqueue_at_front_on_retry"),
    *("success_callback_name", "failure_callback_name", "stopped_callback_name", "webhooks"),
    *("repeats_left", "dependency_id", "dependency_ids", "group_id"),
)
"""What is read of a job. Its last traceback, result and meta are not: nothing of ours needs them."""
_FOREIGN = ("repeats_left", "dependency_id", "dependency_ids", "group_id")
"""What RQ would act on, and no job of ours has."""


@dataclass(frozen=True)
class Fault:
    """Why a job cannot be read."""

    kind: Literal["name", "type", "size", "fields", "call"]
    reason: str


@dataclass(frozen=True)
class SetAsideJob:
    """What is left of a job that was set aside."""

    job: str
    """Its name, shortened; bytes that are no text are escaped."""
    kind: str
    reason: str
    at: str
    """UTC, ISO 8601."""


def read_job(queue: Queue, name: bytes) -> Job | Fault | None:
    """A job of the queue by its name there. None: there is none; it expired or was deleted."""
    if not _ID.fullmatch(name):
        return Fault("name", f"{shown(name)} is no name of a job")
    try:
        fields = _fields(queue.connection, name)
    except redis.exceptions.ResponseError as error:
        return Fault("type", f"what is stored under its name is no job: {shown(str(error))}")
    if isinstance(fields, Fault):
        return fields
    if not fields:
        return None
    try:
        job = Job(name.decode(), connection=queue.connection, serializer=JSONSerializer)
        job.restore(fields)
        job.origin = queue.name
    except NoSuchJobError:
        return Fault("fields", "it has no call")
    except (ValueError, TypeError, AssertionError, OverflowError, RecursionError, TimeoutFormatError) as error:
        return Fault("fields", f"a field cannot be read: {shown(f'{type(error).__name__}: {error}')}")
    return _outside_bounds(job, fields) or job


def read_status(connection: Redis, job_id: str) -> JobStatus | None:
    """None for an unknown job; one whose status cannot be read has failed."""
    status = connection.hget(Job.key_for(job_id), "status")
    try:
        return None if status is None else JobStatus(status.decode())
    except ValueError:
        return JobStatus.FAILED


def set_aside(queue: Queue, name: bytes, fault: Fault, ttl_s: int) -> None:
    """Takes a job off the queue's lists; whoever waits for it hears that it failed, and why."""
    connection: Redis = queue.connection
    with connection.pipeline(transaction=True) as pipeline:
        for key in (queue.key, queue.intermediate_queue_key):
            pipeline.lrem(key, 0, name)
        if fault.kind not in ("name", "type"):
            _fail(Job(name.decode(), connection=queue.connection, serializer=JSONSerializer), fault, ttl_s, pipeline)
        note(name, fault, pipeline)
        pipeline.execute()


def note(name: bytes, fault: Fault, pipeline: Pipeline) -> None:
    """Counts a fault, and keeps its reason for a while."""
    kept = SetAsideJob(shown(name), fault.kind, fault.reason, datetime.now(UTC).isoformat(timespec="seconds"))
    pipeline.lpush(SET_ASIDE, json.dumps(asdict(kept)))
    pipeline.ltrim(SET_ASIDE, 0, MAX_KEPT - 1)
    pipeline.hincrby(COUNTS, fault.kind, 1)


def jobs_set_aside(connection: Redis) -> list[SetAsideJob]:
    """The latest first. Raises Unavailable."""
    with answering():
        return [SetAsideJob(**json.loads(kept)) for kept in connection.lrange(SET_ASIDE, 0, -1)]


def num_set_aside(connection: Redis) -> dict[str, int]:
    """Kind of fault -> how often, since Redis was empty. Raises Unavailable."""
    with answering():
        return {kind.decode(): int(count) for kind, count in connection.hgetall(COUNTS).items()}


def shown(text: str | bytes) -> str:
    """A text from outside as it may stand in a log: shortened, and without characters that are no text."""
    num_characters = len(text)
    start = text[:MAX_SHOWN_CHARACTERS]
    plain = start.decode(errors="backslashreplace") if isinstance(start, bytes) else start
    printable = plain.encode("unicode_escape").decode() if not plain.isprintable() else plain
    return printable if num_characters <= MAX_SHOWN_CHARACTERS else f"{printable}... ({num_characters} characters)"


def _fields(connection: Redis, name: bytes) -> Mapping[bytes, bytes] | Fault:
    """Those that a job has; its call unpacked. Raises redis.exceptions.ResponseError for what is no hash."""
    key = Job.key_for(name.decode())
    with connection.pipeline(transaction=False) as pipeline:
        for field in _FIELDS:
            pipeline.hstrlen(key, field)
        sizes = dict(zip(_FIELDS, pipeline.execute(), strict=True))
    for field, num_bytes in sizes.items():
        most = MAX_PACKED_BYTES if field == "data" else MAX_FIELD_BYTES
        if num_bytes > most:
            return Fault("size", f"{field} has {num_bytes} bytes: at most {most}")
    found = zip(_FIELDS, connection.hmget(key, _FIELDS), strict=True)
    fields = {field.encode(): value for field, value in found if value is not None}
    if b"data" in fields:
        call = _unpacked(fields[b"data"])
        if isinstance(call, Fault):
            return call
        fields[b"data"] = call
    return fields


def _unpacked(data: bytes) -> bytes | Fault:
    """RQ packs the call with zlib, and takes what is not packed as it is."""
    unpacking = zlib.decompressobj()
    try:
        call = unpacking.decompress(data, MAX_UNPACKED_BYTES + 1)
    except zlib.error:
        call = data
    if len(call) > MAX_UNPACKED_BYTES:
        return Fault("size", f"its call has more than {MAX_UNPACKED_BYTES} bytes when it is unpacked")
    # RQ would unpack once more what is packed twice.
    return call if call.startswith(b"[") else Fault("call", "its call is no JSON list")


def _outside_bounds(job: Job, fields: Mapping[bytes, Any]) -> Fault | None:
    foreign = [name for name in _FOREIGN if fields.get(name.encode())]
    if foreign:
        return Fault("fields", f"{foreign[0]} is not supported")
    if (job.retries_left or 0) > MAX_RETRIES:
        return Fault("fields", f"retries_left is {job.retries_left}: at most {MAX_RETRIES}")
    if not 0 <= (job.timeout or 0) <= MAX_TIMEOUT_S:
        return Fault("fields", f"timeout is {job.timeout} s: 0 to {MAX_TIMEOUT_S}")
    return None


def _fail(job: Job, fault: Fault, ttl_s: int, pipeline: Pipeline) -> None:
    pipeline.hset(job.key, mapping={"status": JobStatus.FAILED, "retries_left": 0})
    pipeline.hdel(job.key, "data")
    pipeline.expire(job.key, ttl_s)
    Result.create_failure(job, ttl_s, f"refused: {fault.reason}", pipeline=pipeline)
