"""Equal bits of chosen kernels, tiny: on the interpreter, several matrices at once."""

import json
from pathlib import Path

import pytest

from benchmarks.measure import determinism
from benchmarks.report.at_once import determinism_lines


def test_chosen_kernels_are_run_in_fresh_processes_and_nothing_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARSESMITH_EVALUATOR_DEVICE", "interpreter")
    monkeypatch.setenv("SPARSESMITH_EVALUATOR_SPARE_PROCESS", "false")
    small = ["--nnz", "300", "--max-nnz", "220", "--runs", "2", "--contexts", "2"]
    determinism.main([*small, "--candidates", "0", "--beside", "2", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "cpu" / "determinism-chosen.json").read_text())
    assert {row["name"] for row in found["rows"]} == {"stencil", "power_law"}
    assert all(row["kernel"] and row["runs"] == 4 and not row["reasons"] for row in found["rows"])
    assert (found["runs"], found["differing"], found["searched"]) == (8, 0, False)
    (words,) = determinism_lines(found)
    assert words.startswith("8 runs of 2 matrices' kernels that the cost model chose, in 2 processes each: 0 gave ")
    assert "Speed" not in words


def test_matrices_of_an_earlier_result_are_left_out(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps({"rows": [{"name": "stencil"}]}))
    small = ["--nnz", "300", "--max-nnz", "220"]
    assert set(determinism.patterns_of(determinism.parsed(small))) == {"stencil", "power_law"}
    assert set(determinism.patterns_of(determinism.parsed([*small, "--without", str(earlier)]))) == {"power_law"}
