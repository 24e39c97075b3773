"""What the soak calls wrong, and whom it kills; the load itself against a live generator."""

import random
import threading
import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from benchmarks.service.load import Job, Load
from benchmarks.service.odd_clients import slow, uploading, vanishing
from benchmarks.service.soak import SLOW, Look, complaints, last_lines, looked_at, schedule, under_load
from sparsesmith.transport.connection import Redis
from tests.generator.live_service import Evaluators, live_service

KINDS = ["engine", "evaluator-0", "evaluator-1", "generator", "trainer", "valkey"]


def wait() -> Counter[str]:
    """Nobody is killed."""
    time.sleep(1.5)
    return Counter()


def make_status(state: str = "finished", **answer: Any) -> dict[str, Any]:
    return {"job_id": "j", "status": {"state": state, **answer}}


@pytest.mark.parametrize("seed", range(5))
def test_each_kind_of_process_is_killed_and_those_that_return_slowly_not_often(seed: int) -> None:
    scheduled = Counter(schedule(KINDS, 14, random.Random(seed)))
    assert scheduled.keys() == set(KINDS)
    assert scheduled.total() == 14
    assert all(scheduled[kind] <= most for kind, most in SLOW.items())


def test_fewer_kills_than_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="there are 6 kinds"):
        schedule(KINDS, 5, random.Random(0))


def test_a_job_that_ended_once_and_stayed_so_is_right() -> None:
    end = make_status(report=1)
    assert complaints(Job("j", end=end), Look(make_status(report=1), ("finished",))) == []


@pytest.mark.parametrize(
    ("job", "look", "said"),
    [
        (Job("j"), None, "lost"),
        (
            Job("j", end=make_status()),
            Look(make_status(), ("finished", "finished")),
            "its events say finished, finished",
        ),
        (Job("j", end=make_status()), Look(make_status(), ("finished", "cancelled")), "finished, cancelled"),
        (Job("j", end=make_status()), Look(make_status(), ()), "its events say nothing"),
        (Job("j", end=make_status(report=1)), Look(make_status(report=2), ("finished",)), "its answer changed"),
        (Job("j", True, make_status()), Look(make_status(), ("finished",)), "told that it is cancelled"),
    ],
)
def test_a_job_without_an_end_with_two_or_with_another_answer_is_told(job: Job, look: Look | None, said: str) -> None:
    (told,) = complaints(job, look)
    assert said in told


def test_clients_know_each_job_that_the_service_knows_and_how_it_ended(redis_url: str) -> None:
    with live_service(redis_url, Evaluators(seconds=0.05)) as http:
        url = str(http.base_url).rstrip("/")
        load = Load(url)
        under_load(load, [partial(load.one_client, seed) for seed in range(3)], wait)
        load.wait_for_ends()
        assert load.listed() == load.jobs.keys() != set()
        assert all(complaints(job, looked_at(url, job.job_id)) == [] for job in load.jobs.values())
    assert load.unreachable == 0


def test_clients_that_do_not_behave_harm_no_job_and_make_none_twice(redis_url: str) -> None:
    with live_service(redis_url, Evaluators(seconds=0.05), body_timeout_s=0.5) as http:
        load = Load(str(http.base_url).rstrip("/"))
        odd = [partial(slow, load, 0), partial(vanishing, load, 0), partial(uploading, load, 0, 20_000)]
        under_load(load, [*odd, partial(load.one_client, 0)], wait)
        load.wait_for_ends()
        assert load.listed() == load.jobs.keys() != set()
        assert all(complaints(job, looked_at(load.url, job.job_id)) == [] for job in load.jobs.values())
    assert load.unreachable == 0
    assert load.deeds.keys() == {
        "slow client ended by the server",
        "left in the middle of a body",
        "left before the answer",
        "left in the middle of events",
        "large uploads",
    }


def test_an_end_that_was_written_twice_is_found(redis_url: str, redis_connection: Redis) -> None:
    with live_service(redis_url, Evaluators()) as http:
        load = Load(str(http.base_url).rstrip("/"))
        stopper = threading.Timer(0.3, load.stop.set)
        stopper.start()
        load.one_client(seed=1)
        load.wait_for_ends()
        job = next(each for each in load.jobs.values() if each.end is not None)
        events = f"sparsesmith:job:{job.job_id}:events"
        (_, last), *_ = redis_connection.xrevrange(events, count=1)
        redis_connection.xadd(events, last)
        (told,) = complaints(job, looked_at(load.url, job.job_id))
    assert "its events say" in told


def test_of_each_traceback_in_a_log_the_exception_is_told() -> None:
    log = """INFO: all is well
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    f()
    ~^^
ConnectionError: gone
INFO: on
(EngineCore pid=7) ERROR 11-22 06:43:48 [core.py:1] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-22 06:43:48 [core.py:1]   File "b.py", line 2, in f
(EngineCore pid=7) ERROR 11-22 06:43:48 [core.py:1] RuntimeError: cancelled
"""
    assert last_lines(log) == ["ConnectionError: gone", "RuntimeError: cancelled"]
