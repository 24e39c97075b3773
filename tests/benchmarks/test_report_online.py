"""What the report tells of courses, and of records while processes are killed."""

from typing import Any

from benchmarks.report.online import course_table, learning_kills_section, version_table


def make_course(**changes: Any) -> dict[str, Any]:
    change = {"mean": 0.0, "low": 0.0, "high": 0.0}
    figures = {"pass_at_1": 0.9, "log_speed": 0.5, "best_of_n": 0.7, "different": 5.0}
    course = {
        "kind": "online",
        "arm": "ppo",
        "seed": 0,
        "commit": "0123456789",
        "learned_s": 300.0,
        "updates": [{}, {}],
        "judgements": [{"figures": figures}, {"figures": figures}],
        "against_start": {"log_speed": change, "best_of_n": change},
        "used": 512,
        "used_share": 1.0,
        "oldest_used": 2.0,
        "shares": {"trainer_waits": 0.5, "gpu_0_busy": 0.75},
        "versions": {"accepted": 2, "refused": 1},
        "vetted": [
            {"version": 1, "logprob_gap": 0.01, "logprob_gap_program": 0.02, "canary_s": 6.0, "first_token_s": 0.5},
            {"version": 2, "logprob_gap": 0.03, "logprob_gap_program": 0.04, "canary_s": 4.0, "first_token_s": 0.7},
            {"version": 3, "logprob_gap": None, "logprob_gap_program": None},
        ],
        "jobs": {"posted": 40, "graded": 39, "lost": 1},
    }
    return {**course, **changes}


def test_of_versions_median_and_largest_are_told_with_what_was_lost_and_idle() -> None:
    *_, line = version_table([make_course()])
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[2:7] == ["2, 1", "0.0200, 0.0300", "0.030, 0.040", "5.00, 6.00", "-"]
    assert cells[8:] == ["0.60, 0.70", "1 of 40", "25%"]


def test_a_course_that_kept_nothing_of_its_versions_is_in_the_first_table_only() -> None:
    old = make_course()
    del old["vetted"], old["jobs"]
    assert version_table([old]) == []
    assert len(course_table([old])) == 3


def test_each_table_has_as_many_cells_in_a_line_as_in_its_head() -> None:
    for lines in (course_table([make_course()]), version_table([make_course()])):
        assert len({line.count("|") for line in lines}) == 1


def test_records_under_kills_have_a_section_where_they_were_counted() -> None:
    records = {
        "published": 300, "used": 290, "dropped": {"stale": 10}, "came_again": 4, "waiting": 0, "lost": 0,
        "used_twice": 0, "graded_without_record": 0,
    }  # fmt: skip
    result = {
        "kind": "learning-kills", "date": "d", "commit": "c", "machine": "m", "command": "x",
        "kills": {"trainer": 9, "valkey": 8}, "trainer_killed_at_a_checkpoint": 4,
        "updates": {"while killing": 12, "in all": 14}, "versions": {"accepted": 12}, "records": records,
    }  # fmt: skip
    lines = learning_kills_section([{"kind": "soak"}, result])
    assert "- lost: 0; used twice: 0; graded samples without a record: 0" in lines
    assert any("dropped by reason: 10 stale" in line for line in lines)
    assert learning_kills_section([{"kind": "soak"}]) == []
