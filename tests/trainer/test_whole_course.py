"""A policy learns online on this machine: real engine, interpreter, trainer and canary; toy size."""

import json
import math
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from services.trainer.course import toy
from services.trainer.course.course import run_course
from tests.slow import of_minutes

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1800)]

SECONDS = 45.0
"""Of learning: some eight updates on a quiet machine."""


def test_a_policy_that_learns_online_becomes_better(tmp_path: Path) -> None:
    """Nothing is dropped for its age, and no step is made twice but after a version that its canary refused."""
    toy.make_policy(tmp_path)
    told = run_course(toy.course(tmp_path, SECONDS), toy.lessons(), toy.probes())
    steps = [point.step for point in told.updates]
    again = sum(later != earlier + 1 for earlier, later in pairwise(steps))
    assert steps[0] == 1 and again <= sum(each["decision"] == "refused" for each in events(tmp_path, "vetted")), steps
    assert told.used_share >= 0.9
    assert told.oldest_used <= 2
    first, last = told.judgements[0].figures, told.judgements[-1].figures
    assert last["version"] > first["version"] == 0
    assert last["mean_reward"] > first["mean_reward"]
    assert last["pass_at_1"] > first["pass_at_1"]


@of_minutes
def test_a_course_that_is_judged_at_its_end_alone_is_not_judged_before(tmp_path: Path) -> None:
    """Not in a piece that ended before it learned, nor where the next goes on."""
    toy.make_policy(tmp_path)
    course = replace(toy.course(tmp_path, 5.0, piece_s=0.0), judge="end")
    assert run_course(course, toy.lessons(), toy.probes()).judgements == []
    (judgement,) = run_course(replace(course, piece_s=math.inf), toy.lessons(), toy.probes()).judgements
    assert judgement.at_s == 5.0


def events(state: Path, name: str) -> list[dict[str, Any]]:
    path = state / "ledger.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [entry for entry in map(json.loads, lines) if entry["event"] == name]


@of_minutes
def test_a_course_that_is_killed_goes_on_with_the_next_step(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "services.trainer.course", "demo", str(tmp_path), "--minutes", "1"]
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
        while len(events(tmp_path, "updated")) < 3:
            assert running.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        running.send_signal(signal.SIGKILL)
        running.wait()
        subprocess.run(command, stdout=log, stderr=log, check=True)
    steps = [json.loads(line)["step"] for line in (tmp_path / "trainer" / "updates.jsonl").read_text().splitlines()]
    assert steps == list(range(1, len(steps) + 1)), "a step was lost, or made twice"
    assert len(events(tmp_path, "began")) == 2
    assert [entry["step"] for entry in events(tmp_path, "updated")] == steps
    jobs = [entry["job"] for entry in events(tmp_path, "graded")]
    assert len(jobs) == len(set(jobs))
