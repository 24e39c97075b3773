"""What the benchmark of learning under kills calls wrong."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.service.learning_kills import Evidence, account_of
from services.trainer.online.checkpoints import digest_of_records
from sparsesmith.transport.stream import NO_FATE


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
