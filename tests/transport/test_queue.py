"""The generator's end of the queue, without workers."""

import time

import pytest

from sparsesmith.errors import Conflict, NotFound
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.gpu_kinds import MAX_OVERTAKEN, QUEUE_NAME
from sparsesmith.transport.queue import EvaluationQueue
from tests.transport.messages import CANDIDATE, PROBED, make_job


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


def order_of(redis_connection: Redis) -> list[str]:
    ids = redis_connection.lrange(f"rq:queue:{QUEUE_NAME}", 0, -1)
    return [redis_connection.hget(f"rq:job:{each.decode()}", "description").decode() for each in ids]


def test_a_small_job_goes_before_much_larger_ones(queue: EvaluationQueue, redis_connection: Redis) -> None:
    for name, work in (("large-1", 1000), ("large-2", 1000), ("small-1", 10), ("small-2", 10), ("medium", 30)):
        queue.submit(make_job(name, work=work))
    assert order_of(redis_connection) == ["small-1", "small-2", "medium", "large-1", "large-2"]


def test_jobs_of_like_work_keep_their_order(queue: EvaluationQueue, redis_connection: Redis) -> None:
    for name, work in (("first", 39), ("second", 10), ("third", 38)):
        queue.submit(make_job(name, work=work))
    assert order_of(redis_connection) == ["first", "second", "third"]


def test_a_large_job_lets_no_more_than_a_few_pass(queue: EvaluationQueue, redis_connection: Redis) -> None:
    queue.submit(make_job("large", work=10**12))
    for number in range(20):
        queue.submit(make_job(f"small-{number}", work=1))
    assert order_of(redis_connection).index("large") == MAX_OVERTAKEN


def test_a_job_of_unknown_work_counts_as_large_and_passes_none(queue: EvaluationQueue, redis_connection: Redis) -> None:
    queue.submit(make_job("large", work=10**12))
    queue.submit(make_job("unknown"))
    queue.submit(make_job("small", work=1))
    assert order_of(redis_connection) == ["small", "large", "unknown"]


def test_probes_of_a_policy_version_go_before_all_in_their_order_and_count_for_nobody(
    queue: EvaluationQueue, redis_connection: Redis
) -> None:
    queue.submit(make_job("large", work=10**12))
    for number in range(MAX_OVERTAKEN):
        queue.submit(make_job(f"small-{number}", work=1))
    others = order_of(redis_connection)
    redis_connection.lpush(f"rq:queue:{QUEUE_NAME}", "no-job")
    redis_connection.set("rq:job:no-job", "text")
    for number in range(2 * MAX_OVERTAKEN):
        queue.submit(make_job(f"probe-{number}", candidates=(PROBED,)))
    redis_connection.lrem(f"rq:queue:{QUEUE_NAME}", 1, "no-job")
    queue.submit(make_job("at-once", work=0))
    probes = [f"probe-{number}" for number in range(2 * MAX_OVERTAKEN)]
    assert order_of(redis_connection)[: len(probes)] == probes
    assert order_of(redis_connection)[len(probes) :].index("large") == others.index("large")
    queue.submit(make_job("mixed", candidates=(PROBED, CANDIDATE)))
    assert order_of(redis_connection)[-1] == "mixed", "it says nothing of its work, and is no probe"
