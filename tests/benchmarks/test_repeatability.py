"""Two runs of a suite compared: the same run agrees with itself, a changed one where the tolerances allow it."""

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure.repeatability import compared, main, repeatability
from benchmarks.origin import RESULTS
from benchmarks.report.results import Suite, read_suites

RUN = json.loads((RESULTS / "h200" / "suite-spmv-float32.json").read_text(encoding="utf-8"))
NUM_MATRICES = sum("failed" not in row for row in RUN["rows"])


def suite(factor: Callable[[int], float] = lambda number: 1.0, **changes: Any) -> Suite:
    """The run with every time of matrix number n multiplied by factor(n)."""
    run = copy.deepcopy(RUN) | changes
    for number, row in enumerate(row for row in run["rows"] if "failed" not in row):
        for time in (row["default"], row["best_baseline"], row["families"]["best"]):
            for key in ("us", "low_us", "high_us", "cold_us"):
                if time:
                    time[key] *= factor(number)
    (only,) = read_suites([run])
    return only


def test_a_run_agrees_with_itself() -> None:
    same = compared(suite(), suite())
    assert same.matrices == NUM_MATRICES
    assert [same.time_ratio, same.speedup_ratio] == pytest.approx([1, 1])
    assert (same.share_within_tolerance, same.worst_difference, same.agrees) == (1, 0, True)


def test_a_run_that_is_slower_everywhere_differs_in_its_mean() -> None:
    slower = compared(suite(), suite(lambda number: 1.03))
    assert slower.time_ratio == pytest.approx(1.03)
    assert (slower.share_within_tolerance, slower.agrees) == (1, False)


def test_one_matrix_in_ten_off_is_too_many() -> None:
    odd = compared(suite(), suite(lambda number: (1.06, *[1.0] * 9)[number % 10]))
    assert odd.share_within_tolerance == pytest.approx(0.9, abs=0.02)
    assert not odd.agrees


def test_one_matrix_off_is_named() -> None:
    one = compared(suite(), suite(lambda number: 1.5 if number == 3 else 1.0))
    assert one.worst_matrix == suite().rows[3].name
    assert one.worst_difference == pytest.approx(0.5)
    assert one.agrees == (1 - 1 / NUM_MATRICES > 0.95 and 1.5 ** (1 / NUM_MATRICES) < 1.02)


def test_a_difference_counts_the_same_either_way() -> None:
    there, back = compared(suite(), suite(lambda number: 1.04)), compared(suite(lambda number: 1.04), suite())
    assert there.median_difference == pytest.approx(back.median_difference)


def test_runs_of_different_devices_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different devices"):
        repeatability([suite()], [suite(device=RUN["device"] | {"name": "another"})])


def test_runs_that_share_nothing_are_not_compared() -> None:
    with pytest.raises(ValueError, match="share no suite"):
        repeatability([suite()], [suite(element_type="float64")])


def test_the_command_writes_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, out = RESULTS / "h200" / "suite-spmv-float32.json", tmp_path / "repeatability.json"
    monkeypatch.setattr(sys, "argv", ["repeatability", str(first), str(RESULTS / "h200"), "--out", str(out)])
    assert main() == 0
    written = json.loads(out.read_text(encoding="utf-8"))
    assert (written["kind"], written["agrees"], len(written["suites"])) == ("repeatability", True, 1)
    assert written["command"] == (
        "python -m benchmarks.measure.repeatability suite-spmv-float32.json h200 --out repeatability.json"
    )
