"""Objectives by name: ours, and one that another package brings in a file of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.trainer.online.algorithm import LearnerOptions
from services.trainer.online.algorithms import OURS, algorithm_of
from services.trainer.online.expert import Expert
from services.trainer.online.ppo import Ppo
from services.trainer.online.rloo import Rloo
from sparsesmith.errors import InvalidOption

OUTSIDE = Path(__file__).with_name("outside")
ROOT = Path(__file__).parents[2]


def run_outside(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Python with the other package installed, as a folder on its path."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (OUTSIDE, ROOT, ROOT / "proto")))} | settings
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, cwd=ROOT)


def test_algorithms_are_chosen_by_name() -> None:
    made = [algorithm_of(LearnerOptions(algorithm=name)) for name in OURS]
    assert [type(each) for each in made] == [Rloo, Ppo, Expert]
    assert [each.needs_critic for each in made] == [False, True, False]


def test_an_unknown_algorithm_is_refused_with_what_there_is() -> None:
    with pytest.raises(InvalidOption, match=r"algorithm 'grpo' is unknown \(known: rloo, ppo, expert\)"):
        algorithm_of(LearnerOptions(algorithm="grpo"))


def test_an_algorithm_from_outside_is_chosen_by_its_name_and_learns() -> None:
    run = run_outside("-m", "tests.trainer.train_outside", SPARSESMITH_TRAINER_ALGORITHM="best_of_group")
    assert run.returncode == 0, run.stderr[-2000:]
    told = json.loads(run.stdout.splitlines()[-1])
    assert told["after"] > told["before"] + 1


def test_an_algorithm_from_outside_that_lacks_a_part_is_refused_by_name() -> None:
    run = run_outside("-m", "tests.trainer.train_outside", SPARSESMITH_TRAINER_ALGORITHM="unfinished")
    assert "algorithm unfinished: losses is missing" in run.stderr
