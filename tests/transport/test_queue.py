"""The generator's end of the queue, without workers."""

import time

import pytest

from sparsesmith.errors import Conflict, NotFound
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.queue import EvaluationQueue
from tests.transport.messages import make_job


@pytest.fixture
def queue(redis_connection: Redis) -> EvaluationQueue:
    return EvaluationQueue(redis_connection)


def test_a_job_that_is_submitted_twice_is_queued_once(queue: EvaluationQueue) -> None:
    queue.submit(make_job())
    queue.submit(make_job())
    assert queue.depth() == 1


def test_the_position_counts_the_jobs_ahead(queue: EvaluationQueue) -> None:
    for name in ("first", "second", "third"):
        queue.submit(make_job(name))
    assert [queue.position(name) for name in ("first", "second", "third")] == [0, 1, 2]


def test_a_wait_that_is_over_returns_nothing(queue: EvaluationQueue) -> None:
    queue.submit(make_job())
    began = time.monotonic()
    assert queue.wait("job-1", timeout_s=0.3) is None
    assert 0.3 <= time.monotonic() - began < 5


def test_an_unknown_job_has_no_position_and_no_report(queue: EvaluationQueue) -> None:
    with pytest.raises(NotFound, match="no evaluation ghost is queued"):
        queue.position("ghost")
    with pytest.raises(NotFound, match="no evaluation ghost is queued"):
        queue.wait("ghost", timeout_s=0)


def test_a_cancelled_job_leaves_the_queue_and_expires(queue: EvaluationQueue, redis_connection: Redis) -> None:
    queue.submit(make_job("kept"))
    queue.submit(make_job("cancelled"))
    queue.cancel("cancelled")
    assert queue.depth() == 1
    with pytest.raises(Conflict, match="cancelled was cancelled"):
        queue.wait("cancelled", timeout_s=0)
    lifetimes = [redis_connection.ttl(key) for key in redis_connection.keys("rq:job:*")]
    assert sorted(lifetime > 0 for lifetime in lifetimes) == [False, True]


def test_cancelling_an_unknown_job_does_nothing(queue: EvaluationQueue) -> None:
    queue.cancel("ghost")
    assert queue.depth() == 0


def test_names_that_redis_queues_do_not_allow_are_jobs_too(queue: EvaluationQueue) -> None:
    name = "a.b:c_d-" + "x" * 120
    queue.submit(make_job(name))
    assert queue.position(name) == 0
