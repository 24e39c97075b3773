"""The images: what they copy is there, is enough, and is no more than the service may see."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.compose_files import GPU_FILE, OWN_SERVICES, ROOT, document
from tests.compose.dockerfiles import copies, copy_tree, dockerfile

every_service = pytest.mark.parametrize("service", OWN_SERVICES)
FOR_USERS_ONLY = "sparsesmith/__init__.py: sparsesmith.client"
"""Imported when a user asks for `sparsesmith.tune`."""
PACKAGES = ("services", "sparsesmith", "sparsesmith_proto")
ENTRIES = {
    "generator": "import services.generator.__main__, services.generator.http.app, services.generator.channels",
    "evaluator": "import services.evaluator.__main__, services.evaluator.jobs, services.evaluator.devices",
    "trainer": "import services.trainer.__main__, services.trainer.service, services.trainer.training",
}


@pytest.fixture(scope="module", params=OWN_SERVICES)
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A service and its image's working folder."""
    folder = tmp_path_factory.mktemp(request.param)
    copy_tree(request.param, folder)
    return request.param, folder


@every_service
def test_compose_builds_by_this_file_and_starts_what_it_starts(service: str) -> None:
    composed = document(GPU_FILE)["services"][service]
    assert composed["build"] == {"context": ".", "dockerfile": f"services/{service}/Dockerfile"}
    told = re.search(r"^CMD \[(.*)\]$", dockerfile(service).read_text(), re.MULTILINE)
    assert told is not None
    assert told[1].replace('"', "").split(", ") == composed["command"]


@every_service
def test_everything_that_is_copied_exists_and_is_sent_to_the_builder(service: str) -> None:
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source, _ in copies(service):
        assert (ROOT / source).exists(), source
        assert any(source.rstrip("/") == path or source.startswith(f"{path}/") for path in sent), source


@every_service
def test_an_image_runs_as_an_ordinary_user(service: str) -> None:
    lines = dockerfile(service).read_text().splitlines()
    assert "USER sparsesmith" in lines
    assert not any(line.startswith(("RUN", "COPY")) for line in lines[lines.index("USER sparsesmith") :])


@every_service
def test_an_image_has_no_other_service(service: str) -> None:
    assert {source for source, _ in copies(service) if source.startswith("services/")} == {
        "services/__init__.py",
        f"services/{service}/",
    }


def test_what_is_copied_imports_nothing_that_is_not(image: tuple[str, Path]) -> None:
    _, folder = image
    missing = {
        f"{path.relative_to(folder)}: {module}"
        for path in folder.rglob("*.py")
        for module in imported(path)
        if module.split(".")[0] in PACKAGES and not any(exists(root, module) for root in (folder, folder / "proto"))
    }
    assert missing == {FOR_USERS_ONLY}


def test_the_entry_of_a_service_is_imported_from_its_copies_alone(image: tuple[str, Path]) -> None:
    service, folder = image
    check = (
        "import sys\n"
        f"{ENTRIES[service]}\n"
        f"found = [m.__file__ for n, m in sys.modules.items() if n.split('.')[0] in {PACKAGES} and m.__file__]\n"
        f"print([file for file in found if not file.startswith({str(folder)!r})])\n"
    )
    told = run([sys.executable, "-c", check], folder)
    assert told.splitlines()[-1] == "[]"


@pytest.mark.parametrize("service", ["evaluator", "trainer"])
def test_the_health_check_of_an_image_can_be_called(service: str, tmp_path: Path) -> None:
    copy_tree(service, tmp_path)
    assert "--check" in run([sys.executable, "-m", f"services.{service}", "--help"], tmp_path)


def run(command: list[str], folder: Path) -> str:
    path = os.pathsep.join([str(folder), str(folder / "proto")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def imported(path: Path) -> Iterator[str]:
    """Absolute names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def exists(root: Path, module: str) -> bool:
    path = root.joinpath(*module.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()
