"""Every benchmark starts: what it imports is there, and it says how it is used."""

import importlib
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
MODULES = {
    ".".join(path.relative_to(FOLDER.parent).with_suffix("").parts): path
    for path in sorted(FOLDER.rglob("*.py"))
    if path.stem != "__init__"
}
COMMANDS = [name for name, path in MODULES.items() if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_benchmarks_is_imported(name: str) -> None:
    assert importlib.import_module(name).__doc__


@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_says_how_it_is_used(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


def test_the_benchmarks_that_are_commands_are_found() -> None:
    assert {"benchmarks.service.end_to_end", "benchmarks.measure.run", "benchmarks.report.__main__"} <= set(COMMANDS)
