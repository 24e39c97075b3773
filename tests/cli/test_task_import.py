"""`sparsesmith tasks import` and `export`: what is wrong is one line; the card is told for people and for programs."""

import json
from pathlib import Path

import pytest

from sparsesmith.operations.imported.folder import VARIABLE
from tests.cli.shell import Shell, assert_one_line
from tests.evaluator.references.problems import MATMUL, forward


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.delenv(VARIABLE, raising=False)
    return Shell(monkeypatch, capsys)


def test_a_problem_is_imported_and_told(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "1_Product.py"
    path.write_text(MATMUL.replace("M, K, N = 7, 11, 13", "M = 7\nK = 11\nN = 13"))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "tasks"))
    told = shell("tasks", "import", str(path), "--set", "N=12")
    assert told.code == 0, told.err
    lines = told.out.splitlines()
    assert lines[0] == "imported   kb_1_product: a[m, k], b[k, n], c[m, n]"
    assert "solved by  the programs of matmul" in lines
    assert lines[-1] == "try        sparsesmith tune --task kb_1_product"
    card = json.loads((tmp_path / "tasks" / "kb_1_product" / "task.json").read_text())
    assert card["fixed"] == {"m": 7, "k": 11, "n": 12}
    assert_one_line(shell("tasks", "import", str(path)), "is there already")


WRONG = {
    "no folder": ([], f"name the folder of imported tasks with --into or {VARIABLE}"),
    "a size that is no number": (["--into", "tasks", "--set", "N=many"], "--set N=many: NAME=NUMBER is needed"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_an_import_is_one_line(shell: Shell, tmp_path: Path, what: str) -> None:
    words, reason = WRONG[what]
    (tmp_path / "x.py").write_text(forward("pass"))
    assert_one_line(shell("tasks", "import", str(tmp_path / "x.py"), *words), reason)


def test_what_is_no_answer_is_not_exported(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "answer.json").write_text("{}")
    assert_one_line(shell("tasks", "export", str(tmp_path / "answer.json")), "is no report: workload: Field required")
