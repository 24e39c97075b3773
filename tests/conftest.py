"""One real Valkey for the whole session, in a short folder of its own; engines of processes side by side keep apart."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.transport.connection import Redis, connect

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
if WORKER.startswith("gw"):
    # An engine takes every core, and two whose threads wait for each other on the same ones take many times as long.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", str(int(WORKER[2:]) % (os.cpu_count() or 1)))


# Examples are the same in every run, and none fails because a busy machine was slow to draw or to try it.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.fixture(scope="session")
def valkey() -> Iterator[EmbeddedValkey]:
    """The session's server. Tests that kill theirs start one of their own."""
    with tempfile.TemporaryDirectory(prefix="ss-valkey-") as folder:
        server = EmbeddedValkey(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def redis_connection(valkey: EmbeddedValkey) -> Iterator[Redis]:
    """A client of the session's server, which is empty at the start of each test."""
    connection = connect(valkey.address)
    connection.flushall()
    yield connection
    connection.close()


@pytest.fixture
def redis_url(valkey: EmbeddedValkey, redis_connection: Redis) -> str:
    """The address of the session's server, which is empty at the start of each test."""
    return valkey.address
