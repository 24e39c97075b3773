"""The notebooks, run cell by cell as a user would, against a server that hands out real kernel programs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.generator.live_service import Evaluators, live_service

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
MOST_BYTES = 20_000

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from sparsesmith.runtime.embedded_valkey import EmbeddedValkey

    valkey = EmbeddedValkey(tmp_path_factory.mktemp("valkey"))
    valkey.start()
    with live_service(valkey.address, Evaluators()) as http:
        yield str(http.base_url)
    valkey.stop()


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return found


def code(path: Path) -> str:
    return "\n\n".join("".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "code")


def test_there_are_a_solver_and_a_layer() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["cg", "gnn"]


@every_notebook
def test_a_notebook_runs_from_its_first_cell_to_its_last(path: Path, url: str, tmp_path: Path) -> None:
    if "import torch" in code(path):
        pytest.importorskip("torch")
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", code(path)]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "SPARSESMITH_URL": url},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("\n") >= 3


@every_notebook
def test_a_notebook_is_one_that_readers_render_without_outputs_of_somebody(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    assert len({cell["id"] for cell in cells(path)}) == len(cells(path))
    assert cells(path)[0]["cell_type"] == "markdown"
    for cell in cells(path):
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert path.stat().st_size < MOST_BYTES
