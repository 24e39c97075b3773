"""Every service by the very command, environment and health check that the compose files name, without Docker: Redis is
the embedded Valkey, addresses and folders are this machine's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.processes import start, stop
from tests.compose.compose_files import OWN_SERVICES, ROOT, cpu_document
from tests.generator.tiny_policy import make_policy, write_policy
from tests.transport.workers import wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

HEALTHY_WITHIN_S = 300


class ComposedService:
    """One service of the compose files as a process of this machine."""

    def __init__(self, composed: dict[str, Any], substitutions: dict[str, str], log: Path) -> None:
        self._substitutions = substitutions
        self._healthcheck: list[str] = composed["healthcheck"]["test"][1:]
        self._environment = {
            **os.environ,
            **{name: self._here(str(value)) for name, value in composed["environment"].items()},
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")]),
        }
        self.log = log
        self.process = start(self._command(composed["command"]), log, self._environment)

    def is_healthy(self) -> bool:
        """By its own health check."""
        command = self._command(self._healthcheck)
        return subprocess.run(command, env=self._environment, capture_output=True, check=False).returncode == 0

    def _command(self, words: list[str]) -> list[str]:
        assert words[0] == "python"
        return [sys.executable, *map(self._here, words[1:])]

    def _here(self, text: str) -> str:
        for word, substitute in self._substitutions.items():
            text = text.replace(word, substitute)
        return text


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ComposedService]]:
    """On a Redis of their own: a trainer that another test killed would hold its stream for ten minutes."""
    folder = tmp_path_factory.mktemp("composed")
    valkey = EmbeddedValkey(folder / "valkey")
    valkey.start()
    port = str(free_port())
    substitutions = {
        "/run/sparsesmith": str(make_folder(folder / "secrets")),
        "0.0.0.0": "127.0.0.1",
        "8000": port,
        "/var/lib/sparsesmith/policy": str(make_folder(folder / "exchange")),
        "/var/lib/sparsesmith/trainer": str(make_folder(folder / "trainer")),
        "/var/lib/sparsesmith/signing": str(make_folder(folder / "signing")),
        "/run/gpu-claims": str(make_folder(folder / "gpu-claims")),
        "/tmp/numba": "",  # Beside the source, where this session's other tests have it: a fresh one takes minutes.
        "/tmp/cupy": str(folder / "cupy"),
        "/home/sparsesmith/.cache": str(folder / "engine-cache"),
        "models/sparsesmith-28m": str(write_policy(folder / "policy", make_policy())),
    }
    (folder / "secrets" / "SPARSESMITH_REDIS_URL").write_text(valkey.address)
    composed = cpu_document()["services"]
    running = {name: ComposedService(composed[name], substitutions, folder / f"{name}.log") for name in OWN_SERVICES}
    yield running
    for service in running.values():
        stop(service.process, 60)
    valkey.stop()


def make_folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize("name", OWN_SERVICES)
def test_a_service_becomes_healthy(name: str, services: dict[str, ComposedService]) -> None:
    service = services[name]

    def is_settled() -> bool:
        return service.process.poll() is not None or service.is_healthy()

    wait_until(is_settled, HEALTHY_WITHIN_S)
    assert service.process.poll() is None, service.log.read_text()[-2000:]


@pytest.mark.parametrize("name", OWN_SERVICES)
def test_a_service_that_is_told_to_stop_ends_in_order(name: str, services: dict[str, ComposedService]) -> None:
    service = services[name]
    service.process.terminate()
    assert service.process.wait(400) == 0, service.log.read_text()[-2000:]
