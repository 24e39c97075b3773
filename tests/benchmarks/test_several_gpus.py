"""Two evaluators of one host share the same jobs, and what each finds is held against one evaluator alone."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.measure import several_gpus
from benchmarks.measure.several_gpus import finals
from tests.generator.reports import make_passed, make_report, make_timing
from tests.slow import of_minutes


@of_minutes
def test_the_same_jobs_are_graded_by_one_and_by_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["several_gpus", "--plan", "spmv:float32:1:2", "--evaluators", "1", "2", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    several_gpus.main()
    (file,) = tmp_path.rglob("several-gpus.json")
    one, two = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert [(row["evaluators"], row["jobs"], row["candidates"]) for row in (one, two)] == [(1, 2, 4), (2, 2, 4)]
    assert two["over_one"] == pytest.approx(two["a_second"] / one["a_second"], rel=0.02)
    for row in (one, two):
        in_all = row["evaluators"] * row["seconds"]
        assert row["seconds_in_jobs"] + row["seconds_without_work"] == pytest.approx(in_all, abs=0.03)
        assert 0 < row["longest_job_s"] <= row["seconds_in_jobs"]
    # Estimates are the same wherever they are made.
    assert (two["finals"], two["finals_over_alone"], two["finals_worst"]) == (2, 1.0, 1.0)


def test_of_a_gpu_only_times_of_finals_are_held_against_each_other() -> None:
    brief, final = make_timing(3), make_timing(5).model_copy(update={"is_final": True})
    report = make_report([make_passed(brief), make_passed(final)], job_id="2-spmv-mesh")
    assert finals([report]) == {"spmv-mesh": 5}
    assert finals([make_report([make_passed(brief)], job_id="2-spmv-mesh")]) == {}
