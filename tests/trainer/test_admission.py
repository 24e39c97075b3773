"""Samples are begun as fast as the trainer takes them: a real stream, a real trainer, samples that take their time."""

import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.trainer.course.admission import Admission
from services.trainer.service import open_workshop
from services.trainer.settings import TrainerSettings
from services.trainer.training import train
from sparsesmith.transport.connection import Redis, connect
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.stream import RewardStream
from sparsesmith_proto.policy import PolicyAnnouncement
from tests.generator.tiny_policy import make_policy, write_policy
from tests.trainer.generators import generator, make_verdict
from tests.trainer.records import PATTERN, make_record, make_sampled

BATCH, GROUP, BOUND, UPDATES = 8, 4, 1, 20


def make_admission(connection: Redis) -> Admission:
    return Admission(RewardStream(connection), PolicyChannel(connection), BATCH, BOUND)


def announce(connection: Redis, version: int) -> PolicyAnnouncement:
    announcement = PolicyAnnouncement(
        version=version, weights=f"policy-{version}", sha256="0" * 64, step=version, metrics={}, created_at="then"
    )
    PolicyChannel(connection).announce(announcement)
    return announcement


def test_room_is_for_the_batches_that_would_be_learned_from_in_time(redis_connection: Redis) -> None:
    admission = make_admission(redis_connection)
    assert admission.room(running=0) == (BOUND + 1) * BATCH
    for number in range(3):
        RewardStream(redis_connection).publish(make_record(f"{number}"))
    assert admission.room(running=5) == (BOUND + 1) * BATCH - 3 - 5


def test_a_version_that_waits_for_its_canary_takes_a_batch_of_room(redis_connection: Redis) -> None:
    admission = make_admission(redis_connection)
    announcement = announce(redis_connection, version=1)
    assert admission.room(running=0) == BOUND * BATCH
    PolicyChannel(redis_connection).judge(make_verdict(announcement, "worse"))
    assert admission.room(running=0) == (BOUND + 1) * BATCH


class Works:
    """Samples and grades groups, some for ten times as long as others; `may_begin` is asked before each."""

    def __init__(self, redis_url: str, may_begin: Callable[[int], bool], at_once: int) -> None:
        self._url = redis_url
        self._may_begin = may_begin
        self._lock = threading.Lock()
        self._running = self._begun = 0
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(seed,)) for seed in range(at_once)]

    def __enter__(self) -> "Works":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _work(self, seed: int) -> None:
        connection, chance = connect(self._url), random.Random(seed)
        while not self._stopping.is_set():
            number = self._begin()
            if number is None:
                time.sleep(0.005)
                continue
            version = PolicyChannel(connection).standing().serving_version
            time.sleep(chance.choice([0.03, 0.05, 0.05, 0.3]))
            for sample in range(GROUP):
                origin = make_sampled(group=f"g{number}", group_size=GROUP, first_version=version)
                RewardStream(connection).publish(
                    make_record(f"{number}:{sample}", reward=sample / GROUP, origin=origin)
                )
            with self._lock:
                self._running -= GROUP

    def _begin(self) -> int | None:
        with self._lock:
            if not self._may_begin(self._running):
                return None
            self._running += GROUP
            self._begun += 1
            return self._begun


def learned_from(
    redis_url: str, folder: Path, may_begin: Callable[[int], bool], at_once: int = 8
) -> list[dict[str, Any]]:
    """What the trainer wrote of its updates."""
    write_policy(folder / "model", make_policy())
    settings = TrainerSettings(
        redis_url=redis_url,
        policy_dir=folder / "model",
        exchange_dir=folder / "exchange",
        state_dir=folder / "state",
        device="cpu",
        batch_records=BATCH,
        min_records=BATCH,
        max_wait_s=5,
        max_policy_age=BOUND,
        max_text_tokens=512,
        critic_gate=0,
        epochs=1,
        matrix_rate=1e-5,
        other_rate=1e-5,
    )
    connection = connect(redis_url)
    PatternStore(connection).put(PATTERN)
    workshop = open_workshop(settings, connection)
    with generator(redis_url), Works(redis_url, may_begin, at_once):
        assert train(workshop, lambda: False, max_updates=UPDATES) == UPDATES
    return [json.loads(line) for line in (settings.state_dir / "updates.jsonl").read_text().splitlines()]


def used_share(entries: list[dict[str, Any]]) -> float:
    used = sum(entry["records"] for entry in entries)
    return float(used / (used + sum(entry["skipped"].get("stale", 0) for entry in entries)))


@pytest.mark.timeout(120)
def test_with_admission_nearly_all_records_are_used_and_none_beyond_the_bound(
    redis_connection: Redis, redis_url: str, tmp_path: Path
) -> None:
    admission = make_admission(redis_connection)
    entries = learned_from(redis_url, tmp_path / "held", lambda running: admission.room(running) > 0)
    assert used_share(entries) >= 0.9
    assert max(entry["oldest_used"] for entry in entries) <= BOUND


@pytest.mark.timeout(120)
def test_with_more_under_way_than_admission_allows_records_are_dropped_for_their_age(
    redis_connection: Redis, redis_url: str, tmp_path: Path
) -> None:
    stream = RewardStream(redis_connection)
    entries = learned_from(redis_url, tmp_path / "free", lambda running: stream.length() + running < 6 * BATCH)
    assert used_share(entries) < 0.7
    assert max(entry["oldest_used"] for entry in entries) <= BOUND
