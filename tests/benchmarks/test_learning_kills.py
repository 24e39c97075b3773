"""Whom the benchmark of learning under kills kills, and what it calls wrong."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.service.killing import SLOW
from benchmarks.service.learning_kills import Evidence, account_of, schedule
from services.trainer.online.checkpoints import digest_of_records
from sparsesmith.transport.stream import NO_FATE

KINDS = ["engine", "evaluator-0", "evaluator-1", "generator", "trainer", "valkey"]


def make_update(*record_ids: str) -> dict[str, Any]:
    return {"records": float(len(record_ids)), "records_sha256": digest_of_records(record_ids)}


ALL_WELL = Evidence(
    fates={"a:0": NO_FATE, "a:1": "already_used", "a:2": "stale", "b:0": NO_FATE, "b:1": NO_FATE},
    waiting=frozenset({"b:1"}),
    used=("a:1", "a:0", "b:0"),
    updates=(make_update("a:1", "a:0"), make_update("b:0")),
    graded={"a": 3, "b": 2},
)


def test_records_that_were_used_once_dropped_under_a_reason_or_wait_are_no_complaint() -> None:
    account = account_of(ALL_WELL)
    assert account.complaints == []
    assert (account.published, account.used, account.dropped, account.came_again) == (5, 3, {"stale": 1}, 1)
    assert account.waiting == 1


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"waiting": frozenset()}, "lost: 1"),
        ({"updates": (make_update("a:1", "a:0"), make_update("b:0", "a:0"))}, "used_twice: 1"),
        ({"fates": {**ALL_WELL.fates, "b:0": "turned_down"}}, "used_and_dropped: 1"),
        ({"fates": {name: fate for name, fate in ALL_WELL.fates.items() if name != "b:0"}}, "used_unpublished: 1"),
        ({"updates": (make_update("a:1", "b:0"), make_update("a:0"))}, "updates_of_other_records: 2"),
        ({"graded": {"a": 3, "b": 4}}, "graded_without_record: 2"),
    ],
)
def test_each_way_to_go_wrong_is_told_by_its_name(changes: dict[str, Any], complaint: str) -> None:
    assert complaint in account_of(replace(ALL_WELL, **changes)).complaints


@pytest.mark.parametrize("seed", range(5))
def test_each_kind_of_process_is_killed_and_those_that_return_slowly_not_often(seed: int) -> None:
    scheduled = Counter(schedule(KINDS, 14, random.Random(seed)))
    assert scheduled.keys() == {*KINDS}
    assert scheduled.total() == 14
    assert all(scheduled[kind] <= 2 for kind in SLOW)


def test_fewer_kills_than_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="there are 6 kinds"):
        schedule(KINDS, 5, random.Random(0))
