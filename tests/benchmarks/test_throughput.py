"""Candidates a second are counted over what comes back from a real queue and a real evaluator."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.measure import throughput


def test_every_candidate_of_every_job_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["throughput", "--plan", "spmv:float32:1:3", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    throughput.main()
    (file,) = tmp_path.rglob("throughput.json")
    result = json.loads(file.read_text(encoding="utf-8"))
    (row,) = result["rows"]
    # The first of the two examples warms the evaluator up.
    assert (row["jobs"], row["candidates"], row["outcomes"]) == (1, 3, {"passed": 3})
    # Told with two decimals and with one: on a slow machine that is more than a twentieth.
    assert row["a_second"] == pytest.approx(3 / row["seconds"], rel=0.05, abs=0.06)
