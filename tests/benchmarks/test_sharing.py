"""Evaluators share one device for the same jobs, and what each program takes is held against one evaluator alone."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.measure import sharing
from benchmarks.measure.sharing import agreement, anew, finals
from benchmarks.report.evidence import sections
from tests.evaluator.test_evaluation import make_job
from tests.generator.reports import make_passed, make_report, make_timing
from tests.slow import of_minutes


@of_minutes
def test_the_same_jobs_are_graded_by_one_and_by_two_that_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--plan", "spmv:float32:1:3", "--sharers", "1", "2", "--rounds", "2", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["sharing", *words])
    sharing.main()
    (file,) = tmp_path.rglob("sharing.json")
    result = json.loads(file.read_text(encoding="utf-8"))
    one, two = result["rows"]
    for row in (one, two):
        assert (row["jobs"], row["candidates"], row["passed"]) == (4, 12, 12)
    assert "turn" not in one["stages_s"], "alone nothing is waited for, and no lock is taken"
    assert two["stages_s"]["turn"] > 0
    assert two["over_one"] == pytest.approx(two["a_second"] / one["a_second"], rel=0.02)
    # Estimates are the same wherever they are made.
    same = {"mean": 1.0, "low": 1.0, "high": 1.0, "worst": 1.0, "matrices": 2, "programs": 6}
    assert one["alone_again"] == two["finals_over_alone"] == same
    result["device"]["kind"] = "cuda"
    shown = "\n".join(sections([result]))
    assert "## Evaluators that share a GPU" in shown and "| 2 | 4 | 12 | 12 |" in shown


def test_programs_are_held_against_themselves_and_matrices_count_alike() -> None:
    alone = [{"a": {"x": 10.0, "y": 20.0}, "b": {"x": 5.0}}, {"a": {"x": 10.0}}]
    shared = [{"a": {"x": 11.0, "z": 1.0}, "b": {"x": 5.0}, "c": {"x": 1.0}}]
    told = agreement(shared, alone)
    assert (told["mean"], told["worst"]) == (pytest.approx(1.1**0.5, abs=1e-4), 1.1)
    assert (told["matrices"], told["programs"]) == (2, 2)
    assert agreement([{}], alone) == {"matrices": 0}


def test_of_a_gpu_only_times_of_finals_count() -> None:
    brief, final = make_timing(3), make_timing(5).model_copy(update={"is_final": True})
    report = make_report([make_passed(brief), make_passed(final)], job_id="2-0-spmv-mesh")
    assert [list(times.values()) for times in finals([report]).values()] == [[5]]
    assert finals([report]).keys() == {"spmv-mesh"}


def test_a_round_has_texts_of_its_own() -> None:
    job = make_job("right")
    first, second = (anew(job, name).candidates[0].program for name in ("1-0", "1-1"))
    assert first != second
    assert first.startswith(job.candidates[0].program.rstrip())
