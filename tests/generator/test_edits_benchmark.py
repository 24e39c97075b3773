"""Edits of the policy beside those of mutators: a real engine on a tiny random policy, the tuner on the interpreter."""

import json
import math
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning.edits import COPY, _graded, _options, measured, near_best, summary
from benchmarks.report.evidence import _edits
from benchmarks.tuning.beside_parent import Judge
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.settings import EvaluatorSettings
from services.generator.policy.sampling import PolicySampler, SamplingOptions
from sparsesmith.families import FAMILIES, propose
from sparsesmith.matrix.pack import encode_pattern, write_pack
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Evaluation, Mismatch
from tests.generator.conftest import LivePolicy
from tests.generator.orders import make_pattern, make_workload
from tests.generator.reports import make_candidate, make_passed, make_timing

PATTERN = make_pattern(60, 50)
OF_TRAIN, OF_VALIDATION = "Airfoil_p1_ref1", "USAir97"


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    settings = EvaluatorSettings(device="interpreter")
    with (
        closing(device_process(settings)) as process,
        Compiler(2, timeout_s=settings.compile_limit_s) as compiler,
    ):
        process.start()
        yield Judge(process, compiler, settings.compile_limit_s)


def test_both_arms_edit_the_same_parents_and_the_report_shows_it(
    live_policy: LivePolicy, judge: Judge, tmp_path: Path
) -> None:
    write_pack(tmp_path / "some.pack", {OF_TRAIN: encode_pattern(PATTERN), OF_VALIDATION: encode_pattern(PATTERN)})
    options = _options(
        [str(tmp_path / "some.pack"), "--plan", "spmv:float32:1:6", "--samples", "4", "--parents", "2",
         "--unreported", "--out", str(tmp_path)]
    )  # fmt: skip
    sampler = PolicySampler(live_policy.host, live_policy.writer, SamplingOptions("sm_90", 1.0, 24))
    device = judge.process.description()
    result = live_policy.run(measured(options, sampler, judge, device, time.monotonic() + 300))
    assert json.loads((tmp_path / "cpu" / "edits-train.json").read_text()) == result
    assert result["failed"] == {}
    assert [row["matrix"] for row in result["rows"]] == [OF_TRAIN], "the other matrix is of the other side"
    (row,) = result["rows"]
    assert 1 <= len(row["parents"]) <= 2
    assert result["named_parents"] == sum(parent["is_named"] for parent in row["parents"])
    for parent in row["parents"]:
        assert parent["is_named"] == FAMILIES[parent["family"]].has_facts
        for arm in ("policy", "unreported"):
            assert sum(child["times"] for child in parent[arm]) == 4
            assert {child["outcome"] for child in parent[arm]} == {"rejected"}, "a random policy writes no programs"
        passed = [child for child in parent["mutators"] if child["outcome"] == "passed"]
        assert passed
        assert all(math.isfinite(child["gain"]) and child["gain"] > 0 for child in passed)
    compared = result["summary"]["all"]
    assert compared["policy"]["passed"]["mean"] == compared["unreported"]["passed"]["mean"] == 0
    assert compared["mutators"]["passed"]["mean"] > 0.5
    shown = "\n".join(_edits(result))
    assert f"{result['named_parents']} shown with names" in shown
    for arm in ("policy", "unreported", "mutators"):
        assert f"| all | {arm} |" in shown


def test_a_copy_gains_nothing_and_what_is_wrong_is_told_beside_what_passes(judge: Judge) -> None:
    instance = next(each for each in propose(PATTERN, "spmv", "float32", limit=40) if each.family == "csr_scalar")
    parent = instance.program
    wrong = parent.replace("y[row] = sum", "y[row] = sum + 1")
    other = parent.replace("//@ launch", "// said otherwise\n//@ launch")
    children = {"policy": [parent, parent, wrong, "no program"], "mutators": [other, wrong]}
    found = _graded(parent, children, Problem(make_workload(PATTERN), PATTERN), judge)
    copy, mismatch, nothing = found["policy"]
    assert copy == {"times": 2, "outcome": COPY, "gain": 1.0, "other_code": False}
    assert (mismatch["outcome"], nothing["outcome"]) == ("mismatch", "rejected")
    assert "y[" in mismatch["message"] or "row" in mismatch["message"]
    same, again = found["mutators"]
    assert (same["outcome"], same["gain"], same["other_code"]) == ("passed", 1.0, False)
    assert again == mismatch


def evaluation(name: str, us: float | None) -> Evaluation:
    outcome = Mismatch(message="wrong") if us is None else make_passed(make_timing(us))
    return Evaluation(candidate=make_candidate(name, f"program {name}"), outcome=outcome)


def test_parents_are_the_fastest_and_what_is_within_five_per_cent_of_it() -> None:
    field = [evaluation(name, us) for name, us in (("a", 10.4), ("b", 10.0), ("c", 10.6), ("d", None), ("e", 10.2))]
    assert [each.candidate.candidate_id for each in near_best(field, 5)] == ["b", "e", "a"]
    assert [each.candidate.candidate_id for each in near_best([*field, evaluation("b", 10.1)], 2)] == ["b", "e"]


def child(outcome: str, times: int = 1, **found: Any) -> dict[str, Any]:
    return {"outcome": outcome, "times": times, **found}


def row(matrix: str, policy: list[dict[str, Any]], mutators: list[dict[str, Any]]) -> dict[str, Any]:
    return {"matrix": matrix, "workload": "spmv float32 1", "parents": [{"policy": policy, "mutators": mutators}]}


def test_shares_are_of_all_samples_and_intervals_over_matrices() -> None:
    fast, slow = child("passed", gain=1.06, other_code=True), child("passed", gain=0.9, other_code=True)
    copy, failed = child(COPY, 2, gain=1.0, other_code=False), child("crashed", message="")
    told = summary([row("a", [fast, copy, failed], [slow, slow, slow, fast]), row("b", [slow, fast], [slow, failed])])
    policy, mutators = told["all"]["policy"], told["all"]["mutators"]
    assert (policy["samples"], mutators["samples"], policy["matrices"]) == (6, 6, 2)
    assert policy["passed"]["mean"] == pytest.approx((3 / 4 + 1) / 2)
    assert policy["differs"]["mean"] == pytest.approx((1 / 4 + 1) / 2)
    assert policy["faster_2"] == {"mean": 0.375, "low": 0.25, "high": 0.5}
    assert mutators["faster_2"] == {"mean": 0.125, "low": 0.0, "high": 0.25}
    assert told["all"]["faster_2_over_mutators"]["ratio"] == 3.0
    assert policy["best_gain"] == 1.06
    assert policy["outcomes"] == {"passed": 3, COPY: 2, "crashed": 1}
    assert policy["gain_quantiles"]["0.5"] == 1.0
    assert summary([row("a", [], [fast])])["all"]["policy"] == {"samples": 0}
    assert list(told) == ["all"]
    assert set(told["all"]) == {"policy", "mutators", "faster_2_over_mutators"}, "an arm that nobody asked for"
