"""The generator as a process, with a real engine on a tiny policy, a real Valkey and a real evaluator."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sparsesmith_proto.api import Finished, JobStatus, Running
from tests.generator.processes import ServiceProcess, free_port, wait_until
from tests.generator.tiny_policy import make_policy, write_policy

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

MATRIX = {
    "num_rows": 64,
    "num_cols": 64,
    "row_indices": [*range(64), *range(63)],
    "col_indices": [*range(64), *range(1, 64)],
}


class Stack:
    """A generator that can be killed and started again, and an evaluator."""

    def __init__(self, folder: Path, redis_url: str) -> None:
        self._folder = folder
        self._port = free_port()
        self._policy = write_policy(folder / "policy", make_policy())
        (folder / "exchange").mkdir()
        self._redis_url = redis_url
        self.url = f"http://127.0.0.1:{self._port}"
        self.evaluator = self._start("services.evaluator", SPARSESMITH_EVALUATOR_DEVICE="interpreter")
        self.generator = self.start_generator()

    def start_generator(self) -> ServiceProcess:
        self.generator = self._start(
            "services.generator",
            SPARSESMITH_GENERATOR_PORT=str(self._port),
            SPARSESMITH_GENERATOR_POLICY_DIR=str(self._policy),
            SPARSESMITH_GENERATOR_EXCHANGE_DIR=str(self._folder / "exchange"),
            SPARSESMITH_GENERATOR_MAX_PROGRAM_TOKENS="200",
            SPARSESMITH_GENERATOR_BATCH_CANDIDATES="4",
        )
        return self.generator

    def _start(self, module: str, **environment: str) -> ServiceProcess:
        log = self._folder / f"{module}.log"
        return ServiceProcess(module, log, SPARSESMITH_REDIS_URL=self._redis_url, **environment)

    def post(self, **changes: Any) -> str:
        body = {"matrix": MATRIX, **changes}
        response = httpx.post(f"{self.url}/v1/kernels", json=body, headers={"Cache-Control": "no-cache"}, timeout=60)
        assert response.status_code == 202, response.text
        return str(response.headers["location"])

    def status(self, location: str, wait_s: int = 0) -> JobStatus:
        headers = {"Prefer": f"wait={wait_s}"}
        response = httpx.get(self.url + location, headers=headers, timeout=wait_s + 30)
        return JobStatus.model_validate_json(response.content)

    def finished(self, location: str) -> Finished:
        state = self.status(location, wait_s=60)
        for _ in range(3):
            if isinstance(state.status, Finished):
                return state.status
            state = self.status(location, wait_s=60)
        raise AssertionError(f"not finished: {state}\n{self.generator.log.read_text()[-3000:]}")


@pytest.fixture
def stack(tmp_path: Path, redis_url: str) -> Iterator[Stack]:
    running = Stack(tmp_path, redis_url)
    try:
        yield running
    finally:
        running.generator.end()
        running.evaluator.end()


def test_families_and_samples_are_graded_and_a_killed_generator_answers_after_its_restart(stack: Stack) -> None:
    wait_until(f"{stack.url}/healthz", 120)
    early = stack.post(search="families", budget={"candidates": 4, "seconds": 120})
    loading = httpx.get(f"{stack.url}/readyz", timeout=60)
    assert (loading.status_code, loading.json()["degraded"][:21]) == (200, "the engine is loading")
    assert stack.finished(early).report.search.num_candidates == 4
    while httpx.get(f"{stack.url}/readyz", timeout=60).json()["degraded"] is not None:
        time.sleep(0.5)

    both = stack.finished(stack.post(budget={"candidates": 8, "seconds": 120})).report.search
    assert both.num_candidates == 8
    assert both.outcomes["passed"] >= 1
    (tuned,) = both.sources
    assert (tuned.source, tuned.proposed, tuned.passed) == ("families", 8, both.outcomes["passed"])
    sampled = stack.finished(stack.post(search="sample", budget={"candidates": 4, "seconds": 120})).report.search
    assert sampled.policy_versions == (0,)
    assert [(source.source, source.proposed) for source in sampled.sources] == [("policy", 4)]

    interrupted = stack.post(budget={"candidates": 60, "seconds": 120})
    while not isinstance(stack.status(interrupted).status, Running):
        time.sleep(0.1)
    killed = stack.generator
    killed.kill()
    stack.start_generator()
    wait_until(f"{stack.url}/healthz", 120)
    assert stack.finished(interrupted).report.search.num_candidates > 0
    assert killed.left_behind() == [], "the killed generator left its engine behind"

    ended = stack.generator
    assert ended.terminate() == 0
    assert ended.left_behind() == []


def test_a_generator_that_is_stopped_while_its_engine_loads_ends_soon_and_whole(stack: Stack) -> None:
    wait_until(f"{stack.url}/healthz", 120)
    while len(stack.generator.members()) < 3:
        time.sleep(0.1)
    assert stack.generator.terminate(timeout_s=120) == 0
    assert stack.generator.left_behind() == []


@pytest.mark.parametrize(("word", "code", "told"), [("--help", 0, "It has no options"), ("--port", 2, "--port")])
def test_a_generator_that_is_given_options_does_not_start(word: str, code: int, told: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "services.generator", word], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == code
    assert told in " ".join((ended.stdout + ended.stderr).split())
