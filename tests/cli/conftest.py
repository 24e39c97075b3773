"""The command line, a server that it finds, and files for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import scipy.io

from tests.artifacts.answers import CSR_PROGRAM, make_matrix
from tests.cli.shell import Shell
from tests.generator.live_service import Evaluators, live_service


@pytest.fixture
def sparsesmith_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.setenv("COLUMNS", "100")
    return Shell(monkeypatch, capsys)


@pytest.fixture
def evaluators() -> Evaluators:
    return Evaluators()


@pytest.fixture
def server(redis_url: str, evaluators: Evaluators, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that the command finds by SPARSESMITH_URL."""
    with live_service(redis_url, evaluators, cache_ttl_s=0) as http:
        monkeypatch.setenv("SPARSESMITH_URL", str(http.base_url))
        yield str(http.base_url)


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    path = tmp_path / "a matrix.mtx"
    scipy.io.mmwrite(path, make_matrix())
    return path


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.cu"
    path.write_text(CSR_PROGRAM)
    return path
