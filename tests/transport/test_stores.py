"""Patterns, policy announcements, jobs and tuned kernels on a real Redis."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from sparsesmith.errors import Conflict, NotFound, Unavailable
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.matrix.values import fixed_values
from sparsesmith.transport.candidate_store import CandidateStore
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.job_store import History, IdempotencyKey, JobStore
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.shelf import ShelfLimits
from sparsesmith.transport.tuned_kernel_store import TunedKernelStore
from sparsesmith_proto.api import Cancelled, Failed, JobState, JobStatus, Problem, Queued, Running
from tests.transport.messages import make_announcement

PATTERN = pattern_from_indices(3, 4, [0, 0, 2], [1, 3, 0])
FAILED = Failed(problem=Problem(type="about:blank", title="t", status=503, detail="d"))


def key_of(pattern: Pattern) -> str:
    return f"sparsesmith:pattern:{pattern.digest}"


def test_a_pattern_comes_back_equal_by_its_digest(redis_connection: Redis) -> None:
    store = PatternStore(redis_connection)
    digest = store.put(PATTERN)
    found = store.get(digest)
    assert (found.num_rows, found.num_cols, found.digest) == (3, 4, PATTERN.digest)
    np.testing.assert_array_equal(found.row_offsets, PATTERN.row_offsets)
    np.testing.assert_array_equal(found.col_indices, PATTERN.col_indices)


def test_a_pattern_that_is_used_lives_on(redis_connection: Redis) -> None:
    store = PatternStore(redis_connection, ShelfLimits(ttl_s=1000))
    for use in (store.put, lambda pattern: store.get(pattern.digest), store.put):
        use(PATTERN)
        assert 990 < redis_connection.ttl(key_of(PATTERN)) <= 1000
        redis_connection.expire(key_of(PATTERN), 10)


def test_an_unknown_pattern_is_not_found(redis_connection: Redis) -> None:
    with pytest.raises(NotFound, match="no pattern"):
        PatternStore(redis_connection).get("0" * 64)


@pytest.mark.parametrize(
    ("field", "damage"),
    [("col_indices", b"\1\0\0\0\2\0\0\0\0\0\0\0"), ("col_indices", b"123"), ("shape", b"3"), ("shape", b"x y")],
)
def test_a_damaged_pattern_is_noticed_and_can_be_put_again(field: str, damage: bytes, redis_connection: Redis) -> None:
    store = PatternStore(redis_connection)
    store.put(PATTERN)
    redis_connection.hset(key_of(PATTERN), field, damage)
    with pytest.raises(Unavailable, match="damaged"):
        store.get(PATTERN.digest)
    store.put(PATTERN)
    assert store.get(PATTERN.digest).digest == PATTERN.digest


def test_fixed_values_come_back_equal_by_their_digest_and_damage_is_noticed(redis_connection: Redis) -> None:
    store = PatternStore(redis_connection)
    for element_type in ("float16", "bfloat16", "float32", "float64"):
        values = fixed_values([1.5, -0.1, 0], element_type)
        digest = store.put_values(values)
        assert store.put_values(values) == digest == values.digest
        found = store.get_values(digest)
        assert (found.array.tolist(), found.array.dtype.name) == (values.array.tolist(), element_type)
    redis_connection.hset(f"sparsesmith:values:{digest}", "values", b"12345678")
    with pytest.raises(Unavailable, match="damaged"):
        store.get_values(digest)
    with pytest.raises(NotFound, match="no values"):
        store.get_values(digest)


def test_policy_versions_only_rise(redis_connection: Redis) -> None:
    channel = PolicyChannel(redis_connection)
    assert channel.latest() is None
    assert channel.announce(make_announcement(2))
    assert not channel.announce(make_announcement(1))
    assert not channel.announce(make_announcement(2, sha256="1" * 64))
    assert channel.latest() == make_announcement(2)
    assert channel.announce(make_announcement(3))
    assert channel.latest() == make_announcement(3)


def test_an_announcement_of_another_version_does_not_stand_in_the_way(redis_connection: Redis) -> None:
    channel = PolicyChannel(redis_connection)
    redis_connection.set("sparsesmith:policy:latest", '{"version": 9, "later_field": 1}')
    assert channel.latest() is None
    assert channel.announce(make_announcement(1))
    assert channel.latest() == make_announcement(1)


def status(job_id: str, state: JobState | None = None) -> JobStatus:
    return JobStatus(job_id=job_id, accepted_at="2026-01-01T00:00:00Z", status=state or Queued(position=0))


def running(num_graded: int) -> Running:
    return Running(num_graded=num_graded, budget_candidates=8, best_program=None, best_us=None, best_speedup=None)


def test_an_accepted_job_keeps_its_request_and_its_state(redis_connection: Redis) -> None:
    store = JobStore(redis_connection)
    assert store.accept(status("j1"), "what was asked") == "j1"
    assert (store.request("j1"), store.status("j1")) == ("what was asked", status("j1"))
    store.update(status("j1", running(3)))
    assert store.status("j1") == status("j1", running(3))


def test_an_unknown_job_is_not_found(redis_connection: Redis) -> None:
    store = JobStore(redis_connection)
    for ask in (store.request, store.status, store.events):
        with pytest.raises(NotFound, match="no job ghost"):
            ask("ghost")


def test_a_repeated_idempotency_key_names_the_first_job(redis_connection: Redis) -> None:
    store = JobStore(redis_connection)
    assert store.accept(status("j1"), "r", IdempotencyKey("key", "f1")) == "j1"
    assert store.accept(status("j2"), "r", IdempotencyKey("key", "f1")) == "j1"
    assert store.unfinished() == ["j1"]


def test_an_idempotency_key_with_another_request_is_a_conflict(redis_connection: Redis) -> None:
    store = JobStore(redis_connection)
    store.accept(status("j1"), "r", IdempotencyKey("key", "f1"))
    with pytest.raises(Conflict, match="'key' was used with another request"):
        store.accept(status("j2"), "other", IdempotencyKey("key", "f2"))


def test_unfinished_jobs_come_in_the_order_of_acceptance(redis_connection: Redis) -> None:
    store = JobStore(redis_connection)
    for name in ("z", "a", "m", "b"):
        store.accept(status(name), "r")
    store.update(status("m", FAILED))
    assert store.unfinished() == ["z", "a", "b"]


def test_a_job_ends_once_and_what_comes_after_its_end_is_passed_over(redis_connection: Redis) -> None:
    store = JobStore(redis_connection)
    store.accept(status("j1"), "r")
    assert store.update(status("j1", running(3)))
    assert store.update(status("j1", FAILED))
    assert not store.update(status("j1", Cancelled()))
    assert not store.update(status("j1", running(4)))
    assert store.update(status("j1", FAILED)), "the same end again: its first answer may have been lost"
    assert store.status("j1") == status("j1", FAILED)
    told = [event.status.status.state for event in store.events("j1")]
    assert told == ["queued", "running", "failed"]


def test_a_finished_job_expires_and_an_unfinished_one_does_not(redis_connection: Redis) -> None:
    store = JobStore(redis_connection, History(days=2))
    store.accept(status("j1"), "r")
    keys = ["sparsesmith:job:j1", "sparsesmith:job:j1:events"]
    assert [redis_connection.ttl(key) for key in keys] == [-1, -1]
    store.update(status("j1", Cancelled()))
    times = [redis_connection.ttl(key) / 86400 for key in keys]
    assert times == pytest.approx([2, 1], abs=0.001)


def test_a_job_is_there_for_its_days_and_then_it_is_told_when_it_went(redis_connection: Redis) -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    store = JobStore(redis_connection, History(days=30), clock=lambda: now.timestamp())
    candidates = CandidateStore(redis_connection)
    store.accept(status("j1"), "r")
    store.update(status("j1", FAILED))
    redis_connection.rpush("sparsesmith:job:j1:candidates", "tried")
    now += timedelta(days=29, hours=23)
    assert store.status("j1") == status("j1", FAILED)
    assert store.keeps("j1")
    now += timedelta(hours=2)
    for ask in (store.status, store.request, store.events):
        with pytest.raises(NotFound, match="no job j1: it went on 2026-01-31 at 12:00 UTC"):
            ask("j1")
    assert candidates.page("j1", 0, 10).num_candidates == 0
    assert not store.keeps("j1")
    assert store.newest(9) == []


def test_beyond_the_number_that_is_kept_those_go_that_ended_first(redis_connection: Redis) -> None:
    now = 1_700_000_000.0
    store = JobStore(redis_connection, History(days=30, max_jobs=2), clock=lambda: now)
    for name in ("j1", "j2", "j3", "j4"):
        store.accept(status(name), "r")
    for name in ("j2", "j1", "j3"):
        now += 60
        store.update(status(name, Cancelled()))
    assert [store.keeps(name) for name in ("j1", "j2", "j3", "j4")] == [True, False, True, True]
    with pytest.raises(NotFound, match="no job j2: it went on 2023-11-14 at 22:16 UTC"):
        store.status("j2")


def test_of_a_job_that_ended_long_ago_the_end_is_told(redis_connection: Redis) -> None:
    store = JobStore(redis_connection)
    store.accept(status("j1"), "r")
    store.update(status("j1", Cancelled()))
    redis_connection.delete("sparsesmith:job:j1:events")
    (event,) = store.events("j1")
    assert event.status == status("j1", Cancelled())
    assert store.events("j1", after=event.event_id) == []


def test_jobs_are_listed_the_newest_first_until_they_expire(redis_connection: Redis) -> None:
    store = JobStore(redis_connection)
    for name in ("j1", "j2", "j3"):
        store.accept(status(name), "r")
    assert store.newest(2) == ["j3", "j2"]
    assert store.newest(2, before="j2") == ["j1"]
    assert store.newest(2, before="j1") == []
    with pytest.raises(NotFound, match="j4"):
        store.newest(2, before="j4")
    redis_connection.delete("sparsesmith:job:j2")
    assert [store.keeps(name) for name in ("j1", "j2", "j3")] == [True, False, True]
    assert store.newest(9) == ["j3", "j1"]


def test_events_are_replayed_after_the_one_that_was_seen(redis_connection: Redis) -> None:
    store = JobStore(redis_connection)
    store.accept(status("j1"), "r")
    for number in (1, 2):
        store.update(status("j1", running(number)))
    events = store.events("j1")
    assert [event.status for event in events] == [status("j1"), status("j1", running(1)), status("j1", running(2))]
    assert store.events("j1", after=events[0].event_id) == events[1:]
    assert store.events("j1", after=events[2].event_id, block_ms=1) == []


def test_a_tuned_kernel_is_found_for_the_device_that_reported_last(redis_connection: Redis) -> None:
    store = TunedKernelStore(redis_connection)
    assert store.find("question", []) is None
    store.keep("question", "H200", "H200 nvrtc 13", "fast", ttl_s=100)
    store.keep("other", "L4", "L4 nvrtc 13", "slow", ttl_s=100)
    assert store.find("question", []) is None
    store.keep("question", "H200", "H200 nvrtc 13", "faster", ttl_s=100)
    assert store.find("question", []) == "faster"


def test_a_tuned_kernel_is_found_for_kinds_of_gpu_that_are_there(redis_connection: Redis) -> None:
    store = TunedKernelStore(redis_connection)
    store.keep("question", "H200", "H200 nvrtc 13", "on H200", ttl_s=100)
    store.keep("question", "L4", "L4 nvrtc 13", "on L4", ttl_s=100)
    assert store.find("question", ["H200"]) == "on H200"
    assert store.find("question", ["L4"]) == "on L4"
    assert store.find("question", ["H200", "L4"]) == "on L4", "of the kind that reported last"
    assert store.find("question", ["B200"]) is None
    store.keep("other", "H200", "H200 nvrtc 14", "of a newer compiler", ttl_s=100)
    assert store.find("question", ["H200"]) is None
    assert store.find("question", ["H200", "L4"]) == "on L4"
