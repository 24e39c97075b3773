"""The loop that plays the autoscaler, in short, and what it calls right."""

from pathlib import Path

import pytest

from benchmarks.service.autoscaler import LEAST, MOST, is_right, scaled, wanted


@pytest.mark.stack
def test_no_job_is_lost_or_answered_twice_while_workers_come_go_and_are_killed(tmp_path: Path) -> None:
    found = scaled(16, seed=3, folder=tmp_path)
    assert is_right(found), found
    assert sum(found["events"].values()) >= 16
    assert {"started", "killed"} <= found["events"].keys()
    assert min(found["jobs"], found["named"], found["searches"]) > 0


@pytest.mark.parametrize(
    ("waiting", "busy", "expected"), [(0, 0, LEAST), (1, 0, 1), (3, 0, 2), (0, 5, 5), (3, 5, 7), (100, 0, MOST)]
)
def test_who_works_stays_and_the_queue_pulls_up_others(waiting: int, busy: int, expected: int) -> None:
    assert wanted(waiting=waiting, busy=busy) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"ended": {"answered": 4, "lost": 1}},
        {"ended": {"answered": 4, "failed": 1}},
        {"answered_once": 4, "answered_twice": 1},
        {"searches_on_two_kinds": 1},
        {"on_a_wrong_kind": 1},
    ],
)
def test_a_job_that_was_lost_failed_or_answered_twice_is_not_right(wrong: dict[str, object]) -> None:
    right = {"jobs": 5, "ended": {"answered": 5}, "answered_once": 5, "answered_twice": 0}
    right |= {"searches_on_two_kinds": 0, "on_a_wrong_kind": 0}
    assert is_right(right)
    assert not is_right({**right, **wrong})
