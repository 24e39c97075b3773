"""Imports of KernelBench problems, each made in a process of its own, lie beside one another afterwards."""

import sys
from pathlib import Path

import pytest

from benchmarks.judging.kernelbench import main
from sparsesmith.operations import operations
from sparsesmith.operations.imported.folder import VARIABLE, imported_tasks

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {result}

def get_inputs():
    return [torch.rand(3, 5)]

def get_init_inputs():
    return []
"""


def test_imports_at_once_are_a_flat_folder_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems, into = tmp_path / "level1", tmp_path / "tasks"
    problems.mkdir()
    for number, result in {"1_Twice": "x + x", "2_Squared": "x * x", "3_Broken": "x + unknown"}.items():
        (problems / f"{number}.py").write_text(PROBLEM.format(result=result), encoding="utf-8")
    out = ["--out", str(tmp_path / "out"), "--into", str(into)]
    monkeypatch.setattr(sys, "argv", ["kernelbench", str(problems), *out, "--at-once", "2", "--full-size"])
    main()
    assert sorted(path.name for path in into.iterdir()) == ["kb_1_twice", "kb_2_squared"]
    monkeypatch.setenv(VARIABLE, str(into))
    operations.cache_clear()
    assert sorted(task.name for task in imported_tasks()) == ["kb_1_twice", "kb_2_squared"]
    monkeypatch.delenv(VARIABLE)
    operations.cache_clear()
