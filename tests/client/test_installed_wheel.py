"""`make wheel` in an environment of its own, used from another folder against a server that asks for keys."""

import importlib.util
import os
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import scipy.io

from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.transport.connection import connect
from sparsesmith.transport.keys import KeyStore
from sparsesmith_proto.keys import Quotas
from tests.artifacts.answers import make_matrix
from tests.generator.live_service import Evaluators, live_service

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed"),
    pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed"),
]

IN_PYTHON = """
import pathlib, sys
import numpy, scipy.io, sparsesmith
assert pathlib.Path(sparsesmith.__file__).is_relative_to(sys.prefix), sparsesmith.__file__
matrix = scipy.io.mmread("matrix.mtx").tocsr()
A = sparsesmith.tune(matrix, search="families", budget={"candidates": 4, "seconds": 20})
x = numpy.ones(matrix.shape[1], dtype=numpy.float32)
assert numpy.allclose(A @ x, matrix @ x, rtol=1e-5)
print(A.report.answer.kind)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has the wheel, and beside it only what is installed here: nothing of the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    command = ["make", "--silent", "wheel", f"DIST={folder / 'dist'}", f"SPARSESMITH_PYTHON={sys.executable}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*-py3-none-manylinux_2_*.whl")
    made = folder / "venv"
    venv.create(made, with_pip=False)
    (packages,) = made.glob("lib/python*/site-packages")
    (packages / "of_the_tests.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    install = [sys.executable, "-m", "pip", "--python", str(made / "bin" / "python"), "install"]
    subprocess.run([*install, "--no-deps", "--no-index", "--quiet", str(wheel)], check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Variables of a user of a server that asks for keys and signs reports."""
    folder = tmp_path_factory.mktemp("server")
    valkey = EmbeddedValkey(folder / "valkey")
    valkey.start()
    _, key = KeyStore(connect(valkey.address)).create("alice", Quotas())
    with live_service(valkey.address, Evaluators(), keys="on", signing_dir=folder / "signing") as http:
        yield {"SPARSESMITH_URL": str(http.base_url), "SPARSESMITH_KEY": key}
    valkey.stop()


def run(folder: Path, server: Mapping[str, str], *command: str | Path) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ran = subprocess.run(
        command, cwd=folder, env={**kept, **server}, capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_installed_command_tunes_saves_and_verifies_from_another_folder(
    environment: Path, server: Mapping[str, str], tmp_path: Path
) -> None:
    scipy.io.mmwrite(tmp_path / "matrix.mtx", make_matrix())
    command = environment / "bin" / "sparsesmith"
    assert "verdict" in run(
        tmp_path, server, command, "tune", "matrix.mtx", "--candidates", "4", "--seconds", "20", "--out", "answer"
    )
    (report,) = (tmp_path / "answer").glob("*.json")
    assert "genuine" in run(tmp_path, server, command, "verify", report)
    assert "finished" in run(tmp_path, server, command, "list")


def test_the_installed_library_tunes_from_python_and_brings_no_service(
    environment: Path, server: Mapping[str, str], tmp_path: Path
) -> None:
    scipy.io.mmwrite(tmp_path / "matrix.mtx", make_matrix())
    python = environment / "bin" / "python"
    assert run(tmp_path, server, python, "-W", "ignore", "-c", IN_PYTHON).strip() == "kernel"
    absent = "import importlib.util; print([importlib.util.find_spec(each) for each in ('services', 'benchmarks')])"
    assert run(tmp_path, server, python, "-c", absent).strip() == "[None, None]"
