"""Real grading in real processes that are killed or hang: no job is lost, each record comes once."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from services.evaluator.__main__ import DEVICE_GONE
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.transport.connection import Redis, connect
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.quarantine import Quarantine
from sparsesmith.transport.queue import EvaluationQueue
from sparsesmith.transport.stream import RewardStream
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from tests.evaluator.grading_tools import make_pattern
from tests.evaluator.misbehaving_device import program_text
from tests.evaluator.test_jobs import make_job
from tests.transport.quick_evaluator import LIMITS
from tests.transport.workers import SANDBOXED, Workers, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PATIENCE_S = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    server = EmbeddedValkey(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def connection(server: EmbeddedValkey) -> Redis:
    connection = connect(server.address)
    PatternStore(connection).put(pattern())
    return connection


@pytest.fixture
def workers(server: EmbeddedValkey, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(server.address, tmp_path, SANDBOXED)
    yield workers
    workers.kill_all()


def pattern() -> Pattern:
    return make_pattern(20, 20, 0.2)


def job_of(*behaviours: str, job_id: str = "job") -> EvaluationJob:
    return make_job(*map(program_text, behaviours), job_id=job_id)


def outcomes(report: EvaluationReport | None) -> list[str]:
    assert report is not None
    return [evaluation.outcome.outcome for evaluation in report.evaluations]


def descendants(pid: int) -> set[int]:
    found = set()
    with suppress(FileNotFoundError, ProcessLookupError):  # It ended meanwhile.
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                found |= {child} | descendants(child)
    return found


def is_device_process(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "multiprocessing.spawn" in command


def device_processes(workers: Workers, name: str) -> list[int]:
    return [pid for pid in descendants(workers.pid(name)) if is_device_process(pid)]


def begin_and_hang(queue: EvaluationQueue, workers: Workers, job: EvaluationJob) -> list[int]:
    """The device processes of worker a while a candidate of the job hangs in one."""
    workers.start("a")
    wait_until(lambda: device_processes(workers, "a"))
    queue.submit(job)
    wait_until(lambda: (workers.folder / "wedged.hanging").exists())
    return device_processes(workers, "a")


def test_a_worker_killed_in_the_middle_of_grading_loses_no_job(connection: Redis, workers: Workers) -> None:
    queue = EvaluationQueue(connection, LIMITS)
    job = job_of("right 5", "hang", "right 6")
    children = begin_and_hang(queue, workers, job)
    workers.kill("a")
    wait_until(lambda: not any(is_device_process(child) for child in children), timeout_s=5)
    workers.start("b")
    assert outcomes(queue.wait("job", PATIENCE_S)) == ["passed", "timed_out", "passed"]
    assert workers.began("job") == {"a", "b"}
    records = [delivery.record.record_id for delivery in RewardStream(connection).read("test", 10, 100)]
    assert sorted(records) == ["job:candidate-0", "job:candidate-1", "job:candidate-2"]


def test_a_device_process_killed_in_the_middle_of_grading_costs_one_candidate(
    connection: Redis, workers: Workers
) -> None:
    queue = EvaluationQueue(connection, LIMITS)
    (child,) = begin_and_hang(queue, workers, job_of("right 5", "hang", "right 6"))
    os.kill(child, signal.SIGKILL)
    assert outcomes(queue.wait("job", PATIENCE_S)) == ["passed", "crashed", "passed"]
    assert workers.began("job") == {"a"}


def test_a_device_that_hangs_for_good_ends_its_worker_and_the_job_goes_to_another(
    connection: Redis, workers: Workers
) -> None:
    queue = EvaluationQueue(connection, LIMITS)
    workers.start("a")
    queue.submit(job_of("right 5", "wedge", "right 6"))
    queue.submit(job_of("right 7", job_id="next"))
    assert workers.wait_for_end("a") == DEVICE_GONE
    assert queue.depth() == 2
    (workers.folder / "wedged").rename(workers.folder / "wedged.repaired")
    workers.start("b")
    assert outcomes(queue.wait("job", PATIENCE_S)) == ["passed"] * 3
    assert outcomes(queue.wait("next", PATIENCE_S)) == ["passed"]
    assert workers.began("job") == {"a", "b"}
    assert workers.began("next") == {"b"}


def test_a_memory_that_has_an_error_voids_the_job_which_another_worker_grades(
    connection: Redis, workers: Workers
) -> None:
    queue = EvaluationQueue(connection, LIMITS)
    begin_and_hang(queue, workers, job_of("right 5", "hang", "right 6"))
    queue.submit(job_of("right 7", job_id="next"))
    (workers.folder / "errors.a").write_text("1")
    assert workers.wait_for_end("a") == DEVICE_GONE
    assert queue.depth() == 2
    assert list(RewardStream(connection).read("test", 10, 100)) == []
    (faulty,) = Quarantine(connection).all()
    assert (faulty.uuid, faulty.worker) == ("GPU-a", "a")
    assert faulty.reason == "corrected errors from 0 to 1 while job job ran"
    workers.start("b")
    assert outcomes(queue.wait("job", PATIENCE_S)) == ["passed", "timed_out", "passed"]
    assert outcomes(queue.wait("next", PATIENCE_S)) == ["passed"]
    records = [delivery.record.record_id for delivery in RewardStream(connection).read("test", 10, 100)]
    assert sorted(records) == ["job:candidate-0", "job:candidate-1", "job:candidate-2", "next:candidate-0"]


def test_a_worker_whose_device_does_not_start_takes_no_job(connection: Redis, workers: Workers) -> None:
    queue = EvaluationQueue(connection, LIMITS)
    (workers.folder / "wedged").touch()
    queue.submit(job_of("right 5"))
    workers.start("a")
    assert workers.wait_for_end("a") != 0
    assert workers.began("job") == set()
    assert queue.depth() == 1


def test_jobs_queued_and_in_hand_survive_a_restart_of_redis(
    server: EmbeddedValkey, connection: Redis, workers: Workers
) -> None:
    queue = EvaluationQueue(connection, LIMITS)
    begin_and_hang(queue, workers, job_of("right 5", "hang", "right 6"))
    for number in range(3):
        queue.submit(job_of("right 5", job_id=f"queued-{number}"))
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not server.is_alive())
    time.sleep(4)  # The job in hand ends meanwhile.
    server.start()
    assert outcomes(queue.wait("job", PATIENCE_S)) == ["passed", "timed_out", "passed"]
    for number in range(3):
        assert outcomes(queue.wait(f"queued-{number}", PATIENCE_S)) == ["passed"]
    assert workers.began("job") == {"a"}
