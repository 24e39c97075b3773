"""The report's section on the judge."""

from typing import Any

from benchmarks.report.judging import judging_section

DEVICE = {"kind": "cuda", "name": "NVIDIA H200"}
COSTS: dict[str, Any] = {
    "a_second": {"old": [40.0, 42.0], "new": [39.0, 41.0]},
    "share_of_old": 0.9756,
    "times": {"num_matrices": 10, "brief_geometric_mean": 1.0004, "final_geometric_mean": 0.9999},
    "crashes": {"new": [{"a_second_without": 40.0, "a_second_with": 25.5, "seconds_a_crash": 0.09}]},
}


def judged(**changes: Any) -> dict[str, Any]:
    summary = {"programs": 90, "otherwise": [], "faster_than_honest": []}
    return {
        "kind": "judge",
        "device": DEVICE,
        "commit": "c" * 40,
        "old": "ffdd61c",
        "date": "2026-11-23",
        "summary": summary,
    } | changes


def attacked(**changes: Any) -> dict[str, Any]:
    passed = [
        {"name": "stack read / plain", "work": "undefined", "program": ""},
        {"name": "mutant of csr", "work": "whole"},
    ]
    told = {"num_attempts": 2000, "num_accepted": 1, "stages": {"text": 1999, "passed": 1}, "passed": passed}
    return (
        {"kind": "attacker", "device": DEVICE, "commit": "c0ffee", "finished_at": "2026-11-23T01:00:00"}
        | told
        | changes
    )


def test_a_program_that_was_judged_wrongly_is_named() -> None:
    wrong = {"programs": 25, "otherwise": ["left_over"], "faster_than_honest": []}
    text = "\n".join(judging_section([judged(summary=wrong)]))
    assert "1 otherwise than they should (left_over), 0 of them faster than honest work" in text
    assert "left_over" not in "\n".join(judging_section([judged()]))


def test_both_versions_and_what_a_crash_costs_stand_beside_each_other() -> None:
    lines = judging_section([judged(costs=COSTS)])
    assert "| new | 40 | 25.5 | 0.09 |" in lines
    assert any("old 40 / 42, new 39 / 41; 97.6% of the old's" in line for line in lines)


def test_what_the_attacker_got_accepted_is_named_and_honest_work_is_not() -> None:
    text = "\n".join(judging_section([attacked()]))
    assert "2,000 attempts: 1,999 text, 1 passed. Accepted: **1**." in text
    assert "Accepted: stack read / plain." in text
    harmless = [{"name": "mutant of csr", "work": "whole"}]
    assert "Accepted:" in text and "mutant of csr" not in "\n".join(judging_section([attacked(passed=harmless)]))


def test_without_a_result_there_is_no_section() -> None:
    assert judging_section([{"kind": "suite"}]) == []
