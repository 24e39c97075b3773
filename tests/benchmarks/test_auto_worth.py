"""What a comparison of `auto` with `families` tells; the searches themselves are the stack's."""

import argparse
from typing import Any

import pytest

from benchmarks.matrices.suites import Matrix
from benchmarks.tuning.auto_worth import searched, told
from sparsesmith.client.clients import Client
from tests.generator.live_service import Evaluators, live_service
from tests.generator.orders import make_pattern

OPTIONS = argparse.Namespace(matrices=1, candidates=6, repeats=2)
DEVICE = {"kind": "interpreter", "name": "PTX interpreter"}


def make_search(best_us: float, gain: float | None = None) -> dict[str, Any]:
    policy = {} if gain is None else {"policy": {"proposed": 4, "passed": 1, "gain": gain, "seconds": 2.0}}
    return {"best_us": best_us, "candidates": 40, "sources": policy}


def test_costs_are_told_of_all_searches_and_of_those_where_the_policy_gained_nothing() -> None:
    searches = [make_search(10.0), make_search(10.1, gain=0.0), make_search(10.0), make_search(8.0, gain=0.2)]
    result = told([{"name": "m", "nnz": 5, "device": DEVICE, "searches": searches}], OPTIONS)
    assert result["times"] == "estimated"
    assert result["auto_over_families"] == pytest.approx((1.01 * 0.8) ** 0.5)
    assert result["worst"] == pytest.approx(1.01)
    assert result["policy_gained_nothing"] == {"searches": 1, "auto_over_families": pytest.approx(1.01), "worst": 1.01}
    assert result["candidates"] == {"families_alone": 80, "auto": 80, "auto_by_policy": 8}
    assert result["families_differ_by"] == 0


def test_a_matrix_is_searched_by_both_in_turns(redis_url: str) -> None:
    with live_service(redis_url, Evaluators()) as http, Client(str(http.base_url)) as client:
        row = searched(client, Matrix("m", "class", "validation", make_pattern()), OPTIONS)
    assert [each["strategy"] for each in row["searches"]] == ["families", "auto", "families", "auto"]
    assert all(each["candidates"] == 6 and each["best_us"] == 5 for each in row["searches"])
