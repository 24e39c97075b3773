"""CONTRIBUTING's recipes, executed: a tree with just the files and lines that a recipe names, then everything that uses
what was added."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = Path(__file__).parent


def recipe(question: str) -> set[str]:
    """Paths that the recipe names."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (paragraph,) = (part for part in text.split("\n\n") if part.startswith(f"**How do I add {question}"))
    return set(re.findall(r"`(sparsesmith/[\w/<>.]+)`", paragraph))


def tree_with(folder: Path, added: str, catalogue: str, lines: dict[str, str]) -> list[str]:
    """The package with a recipe's files added and a line put before each of these lines; the files that are new."""
    shutil.copytree(ROOT / "sparsesmith", folder / "sparsesmith", ignore=shutil.ignore_patterns("__pycache__"))
    new = [
        path.relative_to(RECIPES / added) for path in (RECIPES / added).rglob("*.*") if "__pycache__" not in path.parts
    ]
    for path in new:
        assert not (folder / path).exists()
        shutil.copy(RECIPES / added / path, folder / path)
    text = (folder / catalogue).read_text(encoding="utf-8")
    for before, line in lines.items():
        assert text.count(before) == 1
        text = text.replace(before, f"{line}\n{before}")
    (folder / catalogue).write_text(text, encoding="utf-8")
    return sorted(map(str, new))


def run(folder: Path, script: str) -> None:
    paths = [folder, ROOT, ROOT / "proto"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-m", f"tests.recipes.{script}"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=840)
    if "g++ is not installed" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(900)
def test_a_family_is_one_file_and_its_lines_in_the_catalogue(tmp_path: Path) -> None:
    catalogue = "sparsesmith/families/catalogue.py"
    lines = {
        "from sparsesmith.families.spmm import": "from sparsesmith.families.spmv import csr_halves",
        "    *csr.FAMILIES,": "    *csr_halves.FAMILIES,",
    }
    new = tree_with(tmp_path, "family", catalogue, {_first(catalogue, key): line for key, line in lines.items()})
    assert len(new) == 1
    assert recipe("a kernel family") >= {catalogue, "sparsesmith/families/spmv/"}
    run(tmp_path, "try_family")


@pytest.mark.timeout(900)
def test_a_format_is_two_files_and_its_lines_in_the_catalogue(tmp_path: Path) -> None:
    catalogue = "sparsesmith/formats/__init__.py"
    lines = {
        "from sparsesmith.formats.csr_merge import CsrMerge": "from sparsesmith.formats.csr_based import CsrBased",
        "    Panels(),": "    CsrBased(),",
    }
    new = tree_with(tmp_path, "format", catalogue, lines)
    assert len(new) == 2
    named = {path.replace("csr_based", "<name>") for path in new}
    assert recipe("a storage format") == {catalogue, *named}
    run(tmp_path, "try_format")


def _first(path: str, start: str) -> str:
    """The first line of a file that starts so."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return next(line for line in text.split("\n") if line.startswith(start))
