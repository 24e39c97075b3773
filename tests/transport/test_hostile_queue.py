"""What who can write to Redis may leave in the queue: it is set aside with its reason, and harms nothing else."""

import json
import zlib

import pytest
from rq import Queue
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer

from sparsesmith.errors import Unavailable
from sparsesmith.transport.abandoned_jobs import AbandonedJobs
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.gpu_kinds import QUEUE_NAME
from sparsesmith.transport.queue import GRADE_FUNCTION, EvaluationQueue, abandoned_jobs
from sparsesmith.transport.readable_jobs import (
    COUNTS,
    MAX_KEPT,
    MAX_UNPACKED_BYTES,
    SET_ASIDE,
    Fault,
    jobs_set_aside,
    note,
    num_set_aside,
    read_job,
)
from tests.transport.messages import make_job, report_for
from tests.transport.quick_evaluator import LIMITS
from tests.transport.workers import Workers, wait_until

WAITING = f"rq:queue:{QUEUE_NAME}"
TAKEN = f"{WAITING}:intermediate"


@pytest.fixture
def queue(redis_connection: Redis) -> EvaluationQueue:
    return EvaluationQueue(redis_connection, LIMITS)


def recovered(abandoned: AbandonedJobs, connection: Redis) -> bool:
    """Whether nothing is left of what dead workers had."""
    abandoned.recover()
    return bool(connection.llen(TAKEN) == 0)


def plain_queue(connection: Redis) -> Queue:
    return Queue(QUEUE_NAME, connection=connection, serializer=JSONSerializer)


def queued(connection: Redis, **fields: bytes) -> Job:
    """A job of ours, with some of its fields written over."""
    job = plain_queue(connection).enqueue_call(GRADE_FUNCTION, args=(make_job("spoilt").model_dump_json(),))
    connection.hset(job.key, mapping=fields)
    return job


def call(function: str) -> bytes:
    return json.dumps([function, None, [make_job("spoilt").model_dump_json()], {}]).encode()


def assert_it_still_works(queue: EvaluationQueue) -> None:
    queue.submit(make_job("good"))
    assert queue.wait("good", timeout_s=30) == report_for(make_job("good"))


@pytest.mark.parametrize(
    ("fields", "kind", "reason"),
    [
        ({"created_at": b"yesterday"}, "fields", "a field cannot be read"),
        ({"enqueued_at": b"\xff"}, "fields", "a field cannot be read"),
        ({"timeout": b"long"}, "fields", "a field cannot be read"),
        ({"timeout": b"-1"}, "fields", "timeout is -1 s: 0 to"),
        ({"timeout": b"9" * 30}, "fields", "timeout is"),
        ({"retries_left": b"many"}, "fields", "a field cannot be read"),
        ({"retries_left": b"9" * 5000}, "fields", "a field cannot be read"),
        ({"retries_left": b"999999999"}, "fields", "retries_left is 999999999: at most 100"),
        ({"status": b"\xff\xfe"}, "fields", "a field cannot be read"),
        ({"status": b"happy"}, "fields", "a field cannot be read"),
        ({"description": b"\xff\xfe"}, "fields", "a field cannot be read"),
        ({"origin": b"\xff\xfe"}, "fields", "a field cannot be read"),
        ({"repeats_left": b"1000000"}, "fields", "repeats_left is not supported"),
        ({"description": b"x" * 100_000}, "size", "description has 100000 bytes: at most 65536"),
        ({"data": zlib.compress(b"[" + b" " * MAX_UNPACKED_BYTES)}, "size", "more than 67108864 bytes when it is"),
        ({"data": zlib.compress(zlib.compress(call(GRADE_FUNCTION)))}, "call", "its call is no JSON list"),
        ({"data": b"\x80\x04K\x01."}, "call", "its call is no JSON list"),
        ({"data": b"[" * 100_000}, "call", "it cannot be read"),
        ({"data": json.dumps([GRADE_FUNCTION, None, 5, {}]).encode()}, "call", "its arguments are not one text"),
        ({"data": zlib.compress(call("a" * 2**20))}, "call", "... (1048576 characters)' is not allowed"),
    ],
)
def test_a_job_that_cannot_be_read_is_set_aside_and_its_worker_goes_on(
    fields: dict[str, bytes], kind: str, reason: str, queue: EvaluationQueue, workers: Workers, redis_connection: Redis
) -> None:
    job = queued(redis_connection, **fields)
    workers.start("a")
    assert_it_still_works(queue)
    (aside,) = jobs_set_aside(redis_connection)
    assert (aside.job, aside.kind) == (job.id, kind)
    assert reason in aside.reason
    assert len(aside.reason) < 300
    assert num_set_aside(redis_connection) == {kind: 1}
    assert redis_connection.hget(job.key, "status") == b"failed"
    assert redis_connection.ttl(job.key) > 0
    assert workers.began("spoilt") == set()


def test_a_job_whose_last_traceback_is_no_text_is_graded(
    queue: EvaluationQueue, workers: Workers, redis_connection: Redis
) -> None:
    queued(redis_connection, exc_info=b"\xff\xfe", result=b"\xff", meta=b"\xff")
    workers.start("a")
    assert_it_still_works(queue)
    assert workers.began("spoilt") == {"a"}


def test_a_name_that_is_no_text_or_stands_for_no_job_is_set_aside(
    queue: EvaluationQueue, workers: Workers, redis_connection: Redis
) -> None:
    redis_connection.set("rq:job:text", "a text where a job should be")
    redis_connection.rpush(WAITING, b"\xff\xfe", b"n" * 2**20, b"text", b"unknown")
    workers.start("a")
    assert_it_still_works(queue)
    text, long, bytes_ = jobs_set_aside(redis_connection)
    assert (text.job, text.kind) == ("text", "type")
    assert (len(long.job) < 200, long.kind) == (True, "name")
    assert (bytes_.job, bytes_.kind) == ("\\xff\\xfe", "name")
    assert redis_connection.lrange(TAKEN, 0, -1) == []


def test_bytes_that_are_no_text_among_the_taken_jobs_harm_no_other(
    queue: EvaluationQueue, workers: Workers, redis_connection: Redis
) -> None:
    redis_connection.rpush(TAKEN, b"\xff\xfe")
    redis_connection.zadd("rq:wip:evaluations", {b"\xff\xfe:1": 1})
    workers.start("a")
    assert_it_still_works(queue)
    abandoned = abandoned_jobs(plain_queue(redis_connection), LIMITS)
    wait_until(lambda: recovered(abandoned, redis_connection))
    assert redis_connection.zcard("rq:wip:evaluations") == 0
    assert {aside.job for aside in jobs_set_aside(redis_connection)} == {"\\xff\\xfe"}


def test_a_spoilt_job_of_a_dead_worker_is_set_aside_by_whoever_looks(
    queue: EvaluationQueue, redis_connection: Redis
) -> None:
    job = queued(redis_connection, retries_left=b"many")
    redis_connection.lmove(WAITING, TAKEN)
    abandoned = abandoned_jobs(plain_queue(redis_connection), LIMITS)
    wait_until(lambda: recovered(abandoned, redis_connection))
    (aside,) = jobs_set_aside(redis_connection)
    assert (aside.job, aside.kind) == (job.id, "fields")


def test_whoever_waits_for_a_spoilt_job_hears_that_it_failed_and_why(
    queue: EvaluationQueue, workers: Workers, redis_connection: Redis
) -> None:
    queue.submit(make_job("mine"))
    (name,) = redis_connection.lrange(WAITING, 0, -1)
    redis_connection.hset(Job.key_for(name.decode()), "created_at", b"\xff")
    assert queue.wait("mine", timeout_s=0) is None
    workers.start("a")
    with pytest.raises(Unavailable, match="refused: a field cannot be read"):
        queue.wait("mine", timeout_s=30)


def test_a_job_that_is_no_message_of_ours_fails_at_its_first_attempt(
    queue: EvaluationQueue, workers: Workers, redis_connection: Redis
) -> None:
    job = plain_queue(redis_connection).enqueue_call(GRADE_FUNCTION, args=('{"job_id": 1}',))
    redis_connection.hset(job.key, "retries_left", 50)
    workers.start("a")
    assert_it_still_works(queue)
    assert redis_connection.hget(job.key, "status") == JobStatus.FAILED.encode()


def test_a_name_of_a_gigabyte_costs_neither_memory_nor_log(redis_connection: Redis, workers: Workers) -> None:
    packing = zlib.compressobj(9)
    chunk = b"a" * 2**20
    packed = packing.compress(b'["') + b"".join(packing.compress(chunk) for _ in range(1024)) + packing.flush()
    queued(redis_connection, data=packed)
    workers.start("a")
    assert_it_still_works(EvaluationQueue(redis_connection, LIMITS))
    (aside,) = jobs_set_aside(redis_connection)
    assert aside.kind == "size"
    assert workers.peak_memory_bytes("a") < 512 * 2**20


def test_what_is_kept_of_jobs_set_aside_is_bounded_and_their_count_is_not(redis_connection: Redis) -> None:
    with redis_connection.pipeline() as pipeline:
        for number in range(MAX_KEPT + 20):
            note(b"job-%d" % number, Fault("name", "no name"), pipeline)
        pipeline.execute()
    assert len(jobs_set_aside(redis_connection)) == MAX_KEPT == redis_connection.llen(SET_ASIDE)
    assert jobs_set_aside(redis_connection)[0].job == f"job-{MAX_KEPT + 19}"
    assert redis_connection.hget(COUNTS, "name") == str(MAX_KEPT + 20).encode()


def test_a_good_job_is_read_as_rq_reads_it(queue: EvaluationQueue, redis_connection: Redis) -> None:
    queue.submit(make_job("mine"))
    (name,) = redis_connection.lrange(WAITING, 0, -1)
    ours = read_job(plain_queue(redis_connection), name)
    assert isinstance(ours, Job)
    theirs = Job.fetch(name.decode(), connection=redis_connection, serializer=JSONSerializer)
    told = theirs.to_dict(include_meta=False)
    del told["retry_intervals"]  # Who tries again later needs a scheduler, which there is none of.
    assert ours.to_dict(include_meta=False) == told
    assert ours.args == theirs.args
