"""A Redis that is killed and comes back: nothing accepted is lost, and clients go on."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparsesmith.errors import InvalidOption, Unavailable
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.transport.connection import connect, is_answering
from sparsesmith.transport.job_store import JobStore
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.queue import EvaluationQueue
from sparsesmith.transport.stream import RewardStream
from tests.transport.messages import make_announcement, make_job, make_record, report_for
from tests.transport.quick_evaluator import LIMITS
from tests.transport.test_stores import PATTERN, status
from tests.transport.workers import Workers, wait_until

OUTAGE_S = 8
"""Longer than the patience of an ordinary connection."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    server = EmbeddedValkey(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def workers(server: EmbeddedValkey, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(server.address, tmp_path)
    yield workers
    workers.kill_all()


def kill(server: EmbeddedValkey) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not server.is_alive())


def test_what_was_accepted_survives_a_kill_of_the_server(server: EmbeddedValkey) -> None:
    connection = connect(server.address)
    queue, stream, jobs = EvaluationQueue(connection), RewardStream(connection), JobStore(connection)
    patterns, policy = PatternStore(connection), PolicyChannel(connection)
    queue.submit(make_job())
    stream.publish(make_record())
    jobs.accept(status("j1"), "what was asked")
    patterns.put(PATTERN)
    policy.announce(make_announcement(7))
    kill(server)
    server.start()
    assert queue.depth() == 1
    assert [delivery.record for delivery in stream.read("trainer", 10, block_ms=1)] == [make_record()]
    assert (jobs.unfinished(), jobs.request("j1")) == (["j1"], "what was asked")
    assert patterns.get(PATTERN.digest).digest == PATTERN.digest
    assert policy.latest() == make_announcement(7)


def test_a_pending_record_comes_again_after_the_server_was_killed(server: EmbeddedValkey) -> None:
    stream = RewardStream(connect(server.address))
    stream.publish(make_record())
    assert len(stream.read("trainer", 10, block_ms=1)) == 1
    kill(server)
    server.start()
    again = RewardStream(connect(server.address)).read("trainer", 10, block_ms=1)
    assert [delivery.record for delivery in again] == [make_record()]


def test_an_idle_worker_does_not_wait_for_a_server_that_is_away_once_it_is_told_to_stop(
    server: EmbeddedValkey, workers: Workers
) -> None:
    connection = connect(server.address)
    workers.start("a")
    wait_until(lambda: connection.hget("rq:worker:a", "state") == b"idle")
    kill(server)
    time.sleep(1)
    workers.send("a", signal.SIGTERM)
    began = time.monotonic()
    assert workers.wait_for_end("a") == 0
    assert time.monotonic() - began < OUTAGE_S
    assert "Traceback" not in workers.log("a")


def test_a_silent_server_is_unavailable_within_seconds(server: EmbeddedValkey) -> None:
    connection = connect(server.address)
    assert is_answering(connection)
    kill(server)
    began = time.monotonic()
    with pytest.raises(Unavailable, match="Redis does not answer"):
        EvaluationQueue(connection).depth()
    assert not is_answering(connection)
    assert time.monotonic() - began < 20


def test_a_short_outage_is_not_noticed_by_a_caller(server: EmbeddedValkey) -> None:
    queue = EvaluationQueue(connect(server.address))
    queue.submit(make_job())
    kill(server)
    threading.Timer(0.3, server.start).start()
    assert queue.depth() == 1


def test_a_job_in_hand_survives_an_outage(server: EmbeddedValkey, workers: Workers) -> None:
    queue = EvaluationQueue(connect(server.address), LIMITS)
    workers.start("a")
    queue.submit(make_job("hold-1"))
    wait_until(lambda: workers.began("hold-1"))
    kill(server)
    workers.release()  # Its report is ready while there is nowhere to put it.
    time.sleep(OUTAGE_S)
    server.start()
    assert queue.wait("hold-1", timeout_s=30) == report_for(make_job("hold-1"))
    queue.submit(make_job("next"))
    assert queue.wait("next", timeout_s=30) == report_for(make_job("next"))
    assert workers.began("next") == {"a"}


def test_an_idle_worker_survives_an_outage(server: EmbeddedValkey, workers: Workers) -> None:
    queue = EvaluationQueue(connect(server.address), LIMITS)
    workers.start("a")
    queue.submit(make_job("first"))
    assert queue.wait("first", timeout_s=30) is not None
    kill(server)
    time.sleep(OUTAGE_S)
    server.start()
    queue.submit(make_job("second"))
    assert queue.wait("second", timeout_s=60) is not None
    assert workers.began("second") == {"a"}


def test_a_full_server_is_unavailable(server: EmbeddedValkey) -> None:
    connection = connect(server.address)
    connection.config_set("maxmemory", "1mb")
    with pytest.raises(Unavailable, match="Redis is full"):
        EvaluationQueue(connection).submit(make_job(candidates=(make_job().candidates[0],) * 2))
        for number in range(10_000):
            RewardStream(connection).publish(make_record(f"r{number}"))


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidOption, match="expected redis://, rediss:// or unix://"):
        connect("http://example.org")
