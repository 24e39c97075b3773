"""What others, or a fault, may leave where our own services keep things: it costs nothing else."""

import json
import time
from dataclasses import asdict
from datetime import UTC, datetime

import pytest

from sparsesmith.errors import NotFound, Unavailable
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.gpu_kinds import GPUS, GpuKind, GpuKinds
from sparsesmith.transport.job_store import Asker, History, IdempotencyKey, JobStore
from sparsesmith.transport.metrics_channel import MetricsChannel
from sparsesmith.transport.shelf import SIZES, TOTAL, Shelf, ShelfLimits
from sparsesmith_proto.api import Cancelled, JobState, JobStatus, Queued
from tests.transport.messages import device_named

NO_TEXT = b"\xff\xfe"
KEY = IdempotencyKey("key", "fingerprint")


def status(job_id: str, state: JobState | None = None) -> JobStatus:
    return JobStatus(job_id=job_id, accepted_at=datetime.now(UTC).isoformat(), status=state or Queued(position=0))


@pytest.mark.parametrize("score", [0, 2e9], ids=["first", "last"])
def test_names_that_are_no_text_leave_the_lists_of_jobs(redis_connection: Redis, score: float) -> None:
    store = JobStore(redis_connection)
    for number in range(3):
        store.accept(status(f"j{number}"), "what was asked")
    for name in ("unfinished", "all"):
        redis_connection.zadd(f"sparsesmith:jobs:{name}", {NO_TEXT: score, b"\xff": score})
    assert store.newest(2) == ["j2", "j1"]
    assert store.newest(2, before="j1") == ["j0"]
    assert store.unfinished() == ["j0", "j1", "j2"]
    assert redis_connection.zcard("sparsesmith:jobs:unfinished") == 3


def test_jobs_that_ended_go_though_names_among_them_are_no_text(redis_connection: Redis) -> None:
    store = JobStore(redis_connection, History(max_jobs=1))
    redis_connection.zadd("sparsesmith:jobs:goes", {NO_TEXT: time.time() + 60})
    for number in range(3):
        store.accept(status(f"j{number}"), "what was asked")
        store.update(status(f"j{number}", Cancelled()))
    assert store.status("j2").status == Cancelled()
    with pytest.raises(NotFound):
        store.status("j0")


@pytest.mark.parametrize("damage", [NO_TEXT, b"{", b"{}", b""])
def test_a_state_that_cannot_be_read_is_said_of_its_job(redis_connection: Redis, damage: bytes) -> None:
    store = JobStore(redis_connection)
    for job_id in ("spoilt", "good"):
        store.accept(status(job_id), "what was asked")
    redis_connection.hset("sparsesmith:job:spoilt", "status", damage)
    redis_connection.xadd("sparsesmith:job:good:events", {"status": damage})
    with pytest.raises(NotFound, match="job spoilt cannot be read"):
        store.status("spoilt")
    assert [event.status.job_id for event in store.events("good")] == ["good"]


@pytest.mark.parametrize("mark", [NO_TEXT, b"", b"job", b"job fingerprint more"])
def test_an_idempotency_key_whose_job_cannot_be_told_is_given_anew(redis_connection: Redis, mark: bytes) -> None:
    store = JobStore(redis_connection)
    redis_connection.set("sparsesmith:idempotency:key", mark)
    assert store.job_of("key", Asker()) is None
    assert store.accept(status("j1"), "what was asked", KEY) == "j1"
    assert store.accept(status("j2"), "what was asked", KEY) == "j1"


@pytest.mark.parametrize("damage", [NO_TEXT, b"[]", b"{", json.dumps({"name": 5}).encode(), b"null"])
def test_a_kind_of_gpu_that_cannot_be_read_costs_the_others_nothing(redis_connection: Redis, damage: bytes) -> None:
    kinds, kind = GpuKinds(redis_connection), GpuKind.of(device_named("NVIDIA H200"))
    kinds.tell(kind)
    redis_connection.hset(GPUS, "evaluations.other", damage)
    redis_connection.hset(GPUS, NO_TEXT, json.dumps(asdict(kind)))
    redis_connection.sadd("rq:queues", NO_TEXT)
    assert kinds.known() == {kind.queue: kind}
    assert kind.queue in kinds.queues()


def test_a_kind_is_read_though_a_later_release_tells_more(redis_connection: Redis) -> None:
    kind = GpuKind.of(device_named("NVIDIA H200"))
    redis_connection.hset(GPUS, kind.queue, json.dumps({**asdict(kind), "hue": "green"}))
    assert GpuKinds(redis_connection).known() == {kind.queue: kind}


def test_metrics_that_are_no_text_are_left_out(redis_connection: Redis) -> None:
    channel = MetricsChannel(redis_connection)
    channel.publish("good", b"metric 1")
    channel.publish("spoilt", NO_TEXT)
    assert channel.latest() == {"good": "metric 1"}
    redis_connection.zadd("sparsesmith:metrics", {NO_TEXT: 5e9})
    channel.latest()
    assert channel.latest() == {"good": "metric 1"}


def test_another_kind_of_thing_under_a_name_of_ours_is_told_as_an_outage(redis_connection: Redis) -> None:
    redis_connection.set("sparsesmith:jobs:all", "a text where a list should be")
    with pytest.raises(Unavailable, match="WRONGTYPE"):
        JobStore(redis_connection).newest(5)


@pytest.mark.parametrize("damage", [NO_TEXT, b"many", b"1e5", b""])
def test_the_sum_of_what_is_stored_is_counted_anew_where_it_is_no_number(
    redis_connection: Redis, damage: bytes
) -> None:
    shelf = Shelf(redis_connection, ShelfLimits(max_bytes=10_000))
    shelf.put("first", {"content": "x" * 1000}, "j1")
    counted = shelf.num_bytes()
    redis_connection.set(TOTAL, damage)
    assert shelf.num_bytes() == 0
    shelf.put("second", {"content": "x" * 1000}, "j2")
    assert shelf.num_bytes() == 2 * counted
    redis_connection.hset(SIZES, "first", damage)
    assert shelf.release("first", "j1")
    assert shelf.use("second")
    with pytest.raises(Unavailable, match="beyond 10000"):
        shelf.put("third", {"content": "x" * 9000}, "j3")
