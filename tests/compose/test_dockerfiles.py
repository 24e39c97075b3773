"""The images: what they copy is there, is enough, and is no more than the service may see."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.compose.compose_files import GPU_FILE, OWN_SERVICES, ROOT, document
from tests.compose.dockerfiles import Replay, ReplayFailed, copies, dockerfile, instructions, replay

every_service = pytest.mark.parametrize("service", OWN_SERVICES)
FOR_USERS_ONLY = {"sparsesmith/__init__.py: sparsesmith.client", "sparsesmith/__init__.py: sparsesmith.operator"}
"""Imported when a user asks for `sparsesmith.tune`. The generator's image has them, for `sparsesmith keys`."""
OF_A_CLONE = Path("services/trainer/course")
"""Posts to a stack as its users do, from a clone."""
PACKAGES = ("services", "sparsesmith", "sparsesmith_proto")
ENTRIES = {
    "generator": "import services.generator.__main__, services.generator.http.app, services.generator.channels",
    "evaluator": "import services.evaluator.__main__, services.evaluator.jobs, services.evaluator.devices",
    "trainer": "import services.trainer.__main__, services.trainer.service, services.trainer.training",
}


EXTRAS = {
    ("generator", "gpu"): "generator",
    ("generator", "cpu"): "generator",
    ("evaluator", "gpu"): "evaluator-gpu",
    ("evaluator", "cpu"): "evaluator",
    ("trainer", "gpu"): "trainer",
    ("trainer", "cpu"): "trainer",
}
WHAT_METADATA_NEEDS = ("COPY pyproject.toml README.md ./", "COPY sparsesmith/__init__.py sparsesmith/")
AS_IT_WAS = """
FROM python:3.12-slim-bookworm
WORKDIR /app
COPY pyproject.toml README.md ./
RUN --mount=type=cache,target=/root/.cache/pip \\
    pip install --editable '.[trainer]'
COPY sparsesmith/__init__.py sparsesmith/errors.py sparsesmith/
"""
"""The version is read from a file that is copied after it is asked for."""


@pytest.fixture(scope="module", params=EXTRAS, ids="-".join)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Replay]:
    """A service, a variant, and its image's build as far as it goes without downloads."""
    service, variant = request.param
    folder = tmp_path_factory.mktemp(f"{service}-{variant}")
    return service, variant, replay(dockerfile(service).read_text(), folder, {"VARIANT": variant})


@pytest.fixture(scope="module", params=OWN_SERVICES)
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A service and its image's working folder, in which the variants are the same."""
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, replay(dockerfile(request.param).read_text(), folder, {"VARIANT": "cpu"}).folder


def test_every_instruction_works_with_what_was_copied_before_it(built: tuple[str, str, Replay]) -> None:
    service, _, replayed = built
    assert replayed.ran == instructions(dockerfile(service).read_text())


def test_an_image_has_the_packages_of_its_extra(built: tuple[str, str, Replay]) -> None:
    service, variant, replayed = built
    told = run([sys.executable, str(ROOT / "deploy" / "requirements.py"), EXTRAS[service, variant]], ROOT)
    assert {str(Requirement(line)) for line in told.splitlines()} <= set(replayed.installed())


@pytest.mark.parametrize("extra", sorted(set(EXTRAS.values())))
def test_the_requirements_of_an_extra_are_those_of_the_package(extra: str, tmp_path: Path) -> None:
    text = "\n".join([*WHAT_METADATA_NEEDS, f"RUN pip install '.[{extra}]'"])
    packaged = {Requirement(line) for line in replay(text, tmp_path / extra, {}).installed()}
    told = run([sys.executable, str(ROOT / "deploy" / "requirements.py"), extra], ROOT).splitlines()
    of_others = {(found.name, str(found.specifier)) for found in packaged if found.name != "sparsesmith"}
    assert of_others <= {(found.name, str(found.specifier)) for found in map(Requirement, told)}


@every_service
def test_a_change_of_code_leaves_the_layers_of_packages_as_they_are(service: str) -> None:
    found = instructions(dockerfile(service).read_text())
    downloads = [at for at, each in enumerate(found) if "pip install" in each.text and "--no-deps" not in each.text]
    before = {source for each in found[: downloads[-1]] for source, _ in each.copies()}
    assert before == {"pyproject.toml", "deploy/requirements.py"}


def test_a_version_that_is_copied_after_it_is_asked_for_is_found(tmp_path: Path) -> None:
    with pytest.raises(ReplayFailed, match=r"sparsesmith/__init__\.py"):
        replay(AS_IT_WAS, tmp_path, {})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("COPY pyproject.toml ./\nCOPY sparsesmith/__init__.py sparsesmith/\nRUN pip install .", "README.md"),
        ("RUN python requirements.py trainer", "requirements.py"),
        ("RUN pip install --requirement requirements.txt", "requirements.txt"),
        ("RUN curl example.org", "curl"),
        ("COPY pyproject.toml README.md ./\nRUN pip install --no-build-isolation .", "not installed: .'hatchling"),
    ],
)
def test_what_a_build_lacks_is_found(line: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ReplayFailed, match=reason):
        replay(line, tmp_path, {})


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


def test_what_is_copied_imports_nothing_that_is_not(built: tuple[str, str, Replay]) -> None:
    service, _, replayed = built
    folder = replayed.folder
    missing = {
        f"{path.relative_to(folder)}: {module}"
        for path in folder.rglob("*.py")
        if not path.is_relative_to(folder / OF_A_CLONE)
        for module in imported(path)
        if module.split(".")[0] in PACKAGES and not any(exists(root, module) for root in (folder, folder / "proto"))
    }
    assert missing == (set() if service == "generator" else FOR_USERS_ONLY)


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


def test_the_health_check_of_an_image_can_be_called(image: tuple[str, Path]) -> None:
    service, folder = image
    if service != "generator":  # It is asked over HTTP.
        assert "--check" in run([sys.executable, "-m", f"services.{service}", "--help"], folder)


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
