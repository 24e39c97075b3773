"""What a comparison of ways to sample tells; the searches themselves are the stack's."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning.sample_worth import AS_IT_COMES, arms, told

DEVICE = {"kind": "interpreter", "name": "PTX interpreter"}


def make_row(best_us: float, proposed: int, passed: int) -> dict[str, Any]:
    policy = {"proposed": proposed, "passed": passed}
    return {"name": "m", "device": DEVICE, "best_us": best_us, "seconds": 3.0, "sources": {"policy": policy}}


def test_each_arm_is_told_over_the_first_at_equal_seconds() -> None:
    rows = {
        AS_IT_COMES: [make_row(2.0, 40, 30), make_row(4.0, 40, 20)],
        "value model": [make_row(1.0, 16, 15), make_row(4.0, 16, 16)],
    }
    result = told(rows)
    assert result["times"] == "estimated"
    assert result["arms"][AS_IT_COMES] == {"best_over_first_arm": 1.0, "graded": 80, "passed": 50, "seconds": 6.0}
    filtered = result["arms"]["value model"]
    assert filtered["best_over_first_arm"] == pytest.approx(0.5**0.5)
    assert (filtered["graded"], filtered["passed"]) == (32, 31)
    assert "device" not in result["matrices"]["value model"][0]


def test_the_value_model_is_an_arm_only_where_there_is_one() -> None:
    options = argparse.Namespace(policy=Path("new"), value=None, oversampling=4)
    assert list(arms(options)) == [AS_IT_COMES, "checks while decoding"]
    with_value = arms(argparse.Namespace(**{**vars(options), "value": Path("value")}))
    assert with_value["value model"] == {"POLICY_DIR": "new", "VALUE_DIR": "value", "VALUE_OVERSAMPLING": "4"}
