"""The trainer as a process: `python -m services.trainer`, on a real Valkey."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sparsesmith.runtime.processes import child_options, stop
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.stream import RewardStream
from sparsesmith.transport.trainer_lease import KEY
from tests.generator.tiny_policy import make_policy, write_policy
from tests.trainer.records import PATTERN, make_record, make_sampled

LIMIT_S = 60


@pytest.fixture
def environment(tmp_path: Path, redis_url: str) -> dict[str, str]:
    """Of a trainer with folders of its own and a tiny policy that is not written yet."""
    settings = {
        "POLICY_DIR": str(tmp_path / "model"),
        "EXCHANGE_DIR": str(tmp_path / "exchange"),
        "STATE_DIR": str(tmp_path / "state"),
        "FOLDER_POLL_S": "0.5",
        "MAX_WAIT_S": "0.2",
        "MIN_RECORDS": "4",
        "DEVICE": "cpu",
        "CRITIC_GATE": "0",
        "NICENESS": "0",
    }
    named = {f"SPARSESMITH_TRAINER_{name}": value for name, value in settings.items()}
    return {**os.environ, **named, "SPARSESMITH_REDIS_URL": redis_url, "PYTHONPATH": os.pathsep.join(sys.path)}


def start(environment: dict[str, str], *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "services.trainer", *options]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, **child_options())


def run(environment: dict[str, str], *options: str) -> tuple[int, str]:
    """Exit code and standard error of a trainer that ends by itself."""
    process = start(environment, *options)
    try:
        _, errors = process.communicate(timeout=LIMIT_S)
    finally:
        stop(process, 0)
    return process.returncode, errors.decode()


def publish_records(connection: Redis, count: int = 6, version: int = 0) -> None:
    PatternStore(connection).put(PATTERN)
    stream = RewardStream(connection)
    for number in range(count):
        origin = make_sampled(token_ids=(20 + number, 30, 0), first_version=version)
        stream.publish(make_record(f"job-{version}:{number}", reward=number / count, origin=origin))


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert process.poll() is None, "the trainer ended"
        assert time.monotonic() < end, "the trainer takes too long"
        time.sleep(0.1)


def test_records_on_the_stream_become_version_one(
    environment: dict[str, str], tmp_path: Path, redis_connection: Redis
) -> None:
    write_policy(tmp_path / "model", make_policy())
    publish_records(redis_connection)
    code, errors = run(environment, "--once")
    assert code == 0, errors
    announcement = PolicyChannel(redis_connection).latest()
    assert announcement is not None
    assert (announcement.version, announcement.step, announcement.weights) == (1, 1, "policy-1.safetensors")
    assert (tmp_path / "exchange" / "policy-1.safetensors").is_file()
    assert RewardStream(redis_connection).length() == 0
    (line,) = (tmp_path / "state" / "updates.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert (entry["version"], entry["records"], entry["skipped"]) == (1, 6, {})


def test_without_a_policy_folder_the_service_waits_for_one_and_is_healthy(
    environment: dict[str, str], tmp_path: Path, redis_connection: Redis
) -> None:
    assert run(environment, "--check")[0] == 1
    publish_records(redis_connection)
    process = start(environment)
    try:
        wait_for(lambda: (tmp_path / "state" / "heartbeat").exists(), process)
        assert run(environment, "--check") == (0, "")
        write_policy(tmp_path / "staging", make_policy()).rename(tmp_path / "model")
        wait_for(lambda: PolicyChannel(redis_connection).latest() is not None, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    finally:
        stop(process, 0)


def test_one_update_without_a_policy_folder_says_what_is_missing(environment: dict[str, str], tmp_path: Path) -> None:
    code, errors = run(environment, "--once")
    assert code == 1
    assert f"there is no folder {tmp_path / 'model'}" in errors


def test_a_second_trainer_on_the_same_state_is_refused(
    environment: dict[str, str], tmp_path: Path, redis_connection: Redis
) -> None:
    process = start(environment)
    try:
        wait_for(lambda: (tmp_path / "state" / "heartbeat").exists(), process)
        code, errors = run(environment, "--once")
        assert code == 1
        assert "another trainer works on" in errors
    finally:
        stop(process, 0)


def test_a_second_trainer_with_another_state_on_the_same_stream_is_refused_while_the_first_one_lives(
    environment: dict[str, str], tmp_path: Path, redis_connection: Redis
) -> None:
    write_policy(tmp_path / "model", make_policy())
    process = start(environment)
    elsewhere = {**environment, "SPARSESMITH_TRAINER_STATE_DIR": str(tmp_path / "other")}
    try:
        wait_for(lambda: redis_connection.exists(KEY) == 1, process)
        code, errors = run(elsewhere, "--once")
        assert code == 1
        assert "another trainer" in errors and "learns from this stream" in errors
        process.terminate()
        process.communicate(timeout=LIMIT_S)
        assert redis_connection.exists(KEY) == 0, "who ends gives it back"
    finally:
        stop(process, 0)


def test_a_setting_out_of_range_is_named_before_anything_is_loaded(environment: dict[str, str]) -> None:
    code, errors = run({**environment, "SPARSESMITH_TRAINER_EPOCHS": "0"}, "--once")
    assert code == 1
    assert "epochs" in errors


def test_a_gpu_that_is_not_there_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    write_policy(tmp_path / "model", make_policy())
    absent = {"SPARSESMITH_TRAINER_DEVICE": "cuda", "SPARSESMITH_TRAINER_GPU": "63"}
    code, errors = run({**environment, **absent}, "--once")
    assert code == 1
    assert "gpu 63" in errors
