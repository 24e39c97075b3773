"""What is kept of a course's folder, told of it and drawn."""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse

from benchmarks.learning.online import keep, packs, plot, policies, read, table
from benchmarks.matrices.split import SPLIT_FILE
from services.trainer.course import curves
from services.trainer.course.ledger import Ledger
from sparsesmith.matrix.pack import pack_index

FIGURES = {"pass_at_1": 0.5, "mean_reward": 0.4, "log_speed": 0.5, "best_of_n": 1.0, "different": 1.0, "workloads": 1}
GROUP = {
    "lesson": "p0",
    "rewards": [1.0, -0.2],
    "passed": [True, False],
    "log_speeds": [1.0, 0.0],
    "num_different": 1,
    "versions": [0],
}


def make_state(state: Path, arm: str, *judged_s: float, seed: int = 0, **began: Any) -> Path:
    """A course's folder: 20 s of learning, but of a start; judged at these seconds."""
    ledger = Ledger(state / "ledger.jsonl")
    ledger.write("began", 0.0, at=0.0, **began)
    for at_s in () if arm == "start" else (5.0, 20.0):
        ledger.write("graded", at_s, job=f"j{at_s}", **{**GROUP, "lesson": "m0"})
    for at_s in judged_s:
        ledger.write("judged", at_s, version=int(at_s), seconds=70.0, figures=FIGURES, groups=[GROUP])
    course = {
        "arm": arm,
        "settings": {},
        "seed": seed,
        "batch": [16, 32, 2],
        "policy": "models/sparsesmith-28m",
        "lessons": ["m0", "m1:spmv:float32:1", "m2:spmv:float32:1"],
        "probes": [],
    }
    state.joinpath("course.json").write_text(json.dumps(course))
    curves.write(state, curves.curves_of(ledger, arm, seed))
    return state


def kept(state: Path, out: Path, name: str = "") -> dict[str, Any]:
    options = argparse.Namespace(state=state, out=out, device="NVIDIA H200", gpus=1, commit="0123456789", name=name)
    found: dict[str, Any] = json.loads(keep(options).read_text())
    return found


def test_of_a_course_that_was_judged_once_evaluators_and_samples_within_its_seconds_are_kept_and_no_change(
    tmp_path: Path,
) -> None:
    told = kept(make_state(tmp_path / "state", "ppo", 20.0, evaluators=2), tmp_path)
    assert (told["evaluators"], told["graded_samples"], told["against_start"]) == (2, 2, {})
    assert [each["at_s"] for each in told["judged"]] == [20.0]


def test_what_was_graded_is_kept_each_half_minute(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state", "ppo", 65.0)
    ledger = Ledger(state / "ledger.jsonl")
    for at_s in (40.0, 65.0):
        ledger.write("graded", at_s, job=f"j{at_s}", **{**GROUP, "lesson": "m0"})
    told = json.loads((state / "curves.json").read_text()) | {"learned_s": 65.0}
    (state / "curves.json").write_text(json.dumps(told))
    assert kept(state, tmp_path)["graded_within"] == {"30": 4, "60": 6}


def test_two_policies_are_compared_by_courses_that_learned_nothing(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 1)):
        kept(make_state(tmp_path / name, "start", 0.0, seed=seed), tmp_path, name)
    kept(make_state(tmp_path / "c", "ppo", 20.0), tmp_path, "c")
    a, b, c = (tmp_path / "h200" / f"online-{name}.json" for name in "abc")
    told = json.loads(policies("x", [a, b], [b], tmp_path).read_text())
    assert (len(told["before"]), len(told["after"]), told["change"]["log_speed"]["mean"]) == (2, 1, 0.0)
    with pytest.raises(SystemExit, match="arm ppo"):
        policies("x", [a], [c], tmp_path)


def test_of_a_course_that_was_judged_before_it_learned_the_change_is_kept(tmp_path: Path) -> None:
    told = kept(make_state(tmp_path / "state", "ppo", 0.0, 20.0), tmp_path)
    assert told["against_start"]["log_speed"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert told["evaluators"] is None, "of a folder from before this was written"


def test_where_a_course_began_is_told_unless_it_is_what_ships(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state", "ppo", 0.0, 20.0)
    course = json.loads((state / "course.json").read_text())
    (tmp_path / "under").mkdir()
    for description, name in ((None, "under"), ({"name": "pretrained"}, "pretrained")):
        if description is not None:
            (tmp_path / "under" / "policy.json").write_text(json.dumps(description))
        (state / "course.json").write_text(json.dumps(course | {"policy": str(tmp_path / "under")}))
        told = kept(state, tmp_path)
        assert told["policy"] == name
        assert f"| ppo, from {name} |" in table([told], tmp_path)


def test_a_course_that_was_given_more_minutes_has_no_start_of_its_own(tmp_path: Path) -> None:
    assert kept(make_state(tmp_path / "state", "ppo", 10.0, 20.0), tmp_path)["against_start"] == {}


def test_the_newest_piece_tells_the_evaluators(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state", "ppo", 20.0, evaluators=2)
    Ledger(state / "ledger.jsonl").write("began", 20.0, at=1.0, evaluators=3)
    assert kept(state, tmp_path)["evaluators"] == 3


def test_courses_that_were_judged_once_or_not_at_all_are_told_and_drawn(tmp_path: Path) -> None:
    kept(make_state(tmp_path / "a", "start", 0.0, evaluators=1), tmp_path)
    kept(make_state(tmp_path / "b", "ppo", 20.0, evaluators=2), tmp_path)
    kept(make_state(tmp_path / "c", "rloo", evaluators=2), tmp_path)
    kept(make_state(tmp_path / "d", "expert", 0.0, 20.0, evaluators=2), tmp_path)
    courses = read(tmp_path / "h200")
    first, second = table(courses, tmp_path).split("\n\n")
    assert [line.split(" ")[1] for line in first.splitlines()[2:]] == ["expert"]
    assert "expert, from" not in first
    lines = [line.split("|")[1:3] for line in second.splitlines()[2:]]
    assert [(arm.strip(), seeds.strip()) for arm, seeds in lines] == [
        ("start", "1"),
        ("start", "1"),
        ("ppo", "1, start 2"),
    ], "the course of expert iteration was judged before it learned, by other evaluators than the start"
    drawn = Path(plot(courses, tmp_path)).read_text(encoding="utf-8")
    assert "ppo, 20 s" in drawn and "01234567" in drawn
    assert "rloo" not in drawn, "it was not judged"


def test_a_course_that_was_shown_no_matrix_is_told_and_not_drawn(tmp_path: Path) -> None:
    for name, arm in (("a", "start"), ("b", "rloo"), ("c", "blind")):
        kept(make_state(tmp_path / name, arm, 0.0 if arm == "start" else 20.0, evaluators=1), tmp_path)
    courses = read(tmp_path / "h200")
    assert "| blind |" in table(courses, tmp_path)
    drawn = Path(plot(courses, tmp_path)).read_text(encoding="utf-8")
    assert "rloo, 20 s" in drawn and "blind" not in drawn, "it did not begin where the others did"


@pytest.mark.parametrize("count", [1, 5])
def test_lessons_are_matrices_of_the_train_side_and_what_is_made_of_them(tmp_path: Path, count: int) -> None:
    with SPLIT_FILE.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if 3_000 <= int(row["nnz"]) <= 600_000]
    train = [row["name"] for row in rows if row["split"] == "train"][:2]
    judged = next(row["name"] for row in rows if row["split"] == "validation" and row["suite"] == "core")
    for number, name in enumerate((*train, judged)):
        matrix = scipy.sparse.random(200, 300, 0.1, format="csr", random_state=number)
        scipy.sparse.save_npz(tmp_path / f"{name}.npz", matrix)
    lessons, probes = tmp_path / "lessons.pack", tmp_path / "probes.pack"
    packs(argparse.Namespace(matrices=tmp_path, lessons=lessons, probes=probes, count=count, variants=2))
    names = [name.split("~") for name in pack_index(lessons)]
    assert len(names) == 3 * min(count, 2)
    assert {first for first, *_ in names} <= set(train)
    assert sum(len(changes) > 0 for _, *changes in names) == 2 * min(count, 2)
    assert list(pack_index(probes)) == [judged]
