"""What the report tells of courses, and of records while processes are killed."""

from typing import Any

import numpy as np
import pytest

from benchmarks.report.online import (
    SEEDS_INTRO,
    course_table,
    gpus_table,
    learned_lines,
    learning_kills_section,
    online_section,
    policies_table,
    seed_table,
    seeds_interval,
    unsteady_workloads,
    version_table,
)


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
    once = [make_once("start", 0, 0.5), make_once("ppo", 0, 0.6)]
    for lines in (course_table([make_course()]), version_table([make_course()]), seed_table(once)):
        assert len({line.count("|") for line in lines}) == 1


def make_once(arm: str, seed: int, log_speed: float, **changes: Any) -> dict[str, Any]:
    """Judged once, three workloads that differ by 0.1."""
    workloads = {
        f"m{number}": {"pass_at_1": 0.9, "log_speed": log_speed + number / 10, "best_of_n": 1.0, "different": 8.0}
        for number in range(3)
    }
    seconds = 0.0 if arm == "start" else 240.0
    once = {
        "arm": arm,
        "seed": seed,
        "device": {"kind": "cuda", "name": "NVIDIA H200"},
        "learned_s": seconds,
        "judged": [{"at_s": seconds, "version": 0 if arm == "start" else 9, "workloads": workloads}],
        "against_start": {},
        "course": {"batch": [16, 32, 2], "judge": "end"},
        "evaluators": 2,
        "graded_samples": 0 if arm == "start" else 2400,
    }
    return make_course(**{**once, **changes})


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_seeds_of_an_arm_are_one_line_over_pooled_starts_and_beside_ppo_and_rloo() -> None:
    starts = [make_once("start", seed, 0.4 + seed / 5) for seed in range(2)]
    arms = [make_once("ppo", seed, 1.5) for seed in range(3)] + [make_once("expert", 0, 0.5), make_once("rloo", 0, 2.5)]
    told = {cells[0]: cells for cells in map(cells_of, seed_table([*arms, *starts])[2:])}
    assert told["ppo"] == [
        "ppo", "3, start 2", "240", "10.0", "90.0% to 90.0%", "2.000x (1.866 to 2.144)", "1.000x (1.000 to 1.000)",
        "8.0 to 8.0, 100%", "-", "2.000x (2.000 to 2.000)", "lessons of 3 kinds, evaluators 2, update 32 x 16",
        "01234567, NVIDIA H200",
    ]  # fmt: skip
    assert told["expert"][8] == "2.000x (2.000 to 2.000)", "paired by workload: what workloads differ in is no noise"
    assert (told["expert"][9], told["rloo"][8:10]) == ("4.000x (4.000 to 4.000)", ["0.500x (0.500 to 0.500)", "-"])
    assert told["start"][:10] == ["start", "2", "0", "-", "90.0%", "-", "-", "8.0", "-", "-"]


@pytest.mark.parametrize(
    "changes",
    [
        {"commit": "fedcba98"},
        {"device": {"kind": "cuda", "name": "another"}},
        {"judged": [{"at_s": 0.0, "workloads": {"other": {"pass_at_1": 1, "different": 1}}}]},
    ],
)
def test_a_start_that_was_judged_elsewhere_is_not_compared_with(changes: dict[str, Any]) -> None:
    lines = seed_table([make_once("ppo", 0, 0.6), make_once("start", 0, 0.5, **changes)])
    (ppo,) = [cells for cells in map(cells_of, lines) if cells[0] == "ppo"]
    assert (ppo[5], ppo[6]) == ("-", "-")


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluators": 1},
        {"course": {"batch": [16, 16, 2]}},
        {"lesson_kinds": ["spmv:float32:1"]},
        {"lesson_matrices": 600},
    ],
)
def test_ppo_under_other_settings_is_not_compared_with(changes: dict[str, Any]) -> None:
    lines = seed_table([make_once("ppo", 0, 0.6, **changes), make_once("expert", 0, 0.5)])
    assert [cells_of(line)[8] for line in lines[2:]] == ["-", "-"]


def test_a_workload_that_starts_find_a_doubling_apart_is_left_out_of_all_and_named() -> None:
    starts = [make_once("start", seed, 0.5) for seed in range(2)]
    starts[1]["judged"][-1]["workloads"]["m1"]["log_speed"] = -2.3
    told = {cells[0]: cells for cells in map(cells_of, seed_table([make_once("rloo", 0, 1.5), *starts])[2:])}
    assert told["rloo"][5] == "2.000x (2.000 to 2.000)"
    assert told["start"][1] == "2, without m1"
    assert unsteady_workloads(starts[:1]) == []


def test_a_course_that_was_not_judged_after_its_seconds_has_no_line() -> None:
    interrupted = make_once("ppo", 0, 0.6, judged=[])
    before_alone = make_once("ppo", 0, 0.6, judged=[{"at_s": 0.0, "workloads": {}}])
    assert seed_table([interrupted, before_alone]) == []
    assert online_section([interrupted]) == []


def test_each_course_is_in_one_of_the_tables() -> None:
    lines = online_section([make_once("ppo", 0, 0.6), make_once("start", 0, 0.5)])
    assert SEEDS_INTRO in lines and not any("room" in line for line in lines)
    assert seed_table([make_once("ppo", 0, 0.6, against_start={"log_speed": {}})]) == []


def test_the_readme_has_the_longest_courses_of_several_arms_that_have_a_start_the_best_first() -> None:
    starts = [make_once("start", seed, 0.5) for seed in range(2)]
    arms = [make_once("ppo", 0, 0.6), make_once("ppo", 1, 0.6), make_once("rloo", 0, 1.5)]
    longer = make_once("rloo", 0, 2.5)
    longer["judged"][0]["at_s"] = 900.0
    lines = learned_lines([*arms, longer, *starts])
    assert [cells_of(line)[:2] for line in lines[2:4]] == [["rloo", "1"], ["ppo", "2"]]
    assert cells_of(lines[2])[2:4] == ["90.0% to 90.0%", "2.000x (2.000 to 2.000)"]
    assert "240 s" in lines[0] and len({line.count("|") for line in lines[:4]}) == 1
    assert learned_lines(arms) == learned_lines([longer, *starts]) == []


def test_intervals_hold_what_seeds_and_what_workloads_differ_by() -> None:
    same = np.zeros((3, 4))
    assert seeds_interval(same, same) == {"mean": 0.0, "low": 0.0, "high": 0.0}
    by_seed = seeds_interval(same + np.array([[0.0], [0.3], [0.6]]), same)
    assert (by_seed["low"], by_seed["high"]) == pytest.approx((0.0, 0.6))
    by_workload = seeds_interval(same + np.array([0.0, 0.0, 1.0, 1.0]), same)
    assert (by_workload["mean"], by_workload["low"], by_workload["high"]) == (0.5, 0.0, 1.0)


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


def test_a_course_on_two_gpus_stands_beside_those_on_one_in_the_seconds_that_all_have() -> None:
    ones = [
        make_once("rloo", seed, 0.6, gpu_seconds=240.0, graded_within={"30": 300, "60": 600 + seed, "90": 990})
        for seed in (0, 20)
    ]
    two = make_once("rloo", 1, 0.6, gpu_seconds=480.0, graded_within={"30": 400, "60": 915}, judged=[])
    *_, line = gpus_table([*ones, two])
    assert cells_of(line) == [
        "rloo", "2", "32 x 16", "2", "60", "15.2", "10.2", "2", "1.50x", "01234567, NVIDIA H200",
    ]  # fmt: skip
    assert gpus_table([two]) == gpus_table(ones) == [], "nothing to compare with"
    assert gpus_table([*ones, {**two, "commit": "another"}]) == []


def test_two_policies_are_two_lines_and_their_difference() -> None:
    change = {"mean": 1.0, "low": 0.5, "high": 2.0}
    figures = {"pass_at_1": 0.9, "log_speed": 1.0, "best_of_n": 2.0, "different": 8.0}
    sides = {
        "before": [{"commit": "0123456789", "figures": figures}, {"commit": "9876543210", "figures": figures}],
        "after": [{"commit": "0123456789", "figures": {**figures, "log_speed": 2.0}}],
    }
    told = {
        "kind": "policies",
        "name": "more",
        "device": {"kind": "cuda", "name": "NVIDIA H200"},
        "change": dict.fromkeys(("pass_at_1", "log_speed", "best_of_n", "different"), change),
        **sides,
    }
    head, _, before, after, last = policies_table([told])
    assert len({line.count("|") for line in (head, before, after, last)}) == 1
    assert cells_of(before) == [
        "more: before", "2", "90.0%", "2.000x", "4.000x", "8.0", "01234567, 98765432, NVIDIA H200",
    ]  # fmt: skip
    assert cells_of(after)[:4] == ["more: after", "1", "90.0%", "4.000x"]
    assert cells_of(last)[2:4] == ["+100.0 (+50.0 to +200.0) points", "2.000x (1.414 to 4.000)"]
