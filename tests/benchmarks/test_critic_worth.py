"""What is counted of a taught critic."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.learning.critic_worth import explained_interval, library_times, rows_of
from services.trainer.offline.critic_training import States
from services.trainer.offline.targets import WorkloadKey
from services.trainer.time_critic import TimeCritic, TimeHead

HIDDEN = 4


def make_critic() -> TimeCritic:
    """The first number of a state is the time that it expects."""
    head = TimeHead(HIDDEN, width=2)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        head.first.weight[0, 0], head.first.weight[1, 0] = 1.0, -1.0
        head.last.weight[0, 0], head.last.weight[0, 1] = 1.0, -1.0  # gelu(x) - gelu(-x) = x
    return TimeCritic(head, HIDDEN)


def make_states(expected: list[float], measured: list[float], workloads: list[int]) -> States:
    hidden = torch.zeros(len(expected), HIDDEN)
    hidden[:, 0] = torch.tensor(expected)
    return States(hidden.half(), torch.tensor(measured), torch.tensor(workloads), torch.full((len(expected),), 10))


KEYS = [WorkloadKey("a", "spmv", "float32", 1), WorkloadKey("b", "spmm", "float32", 32)]
LIBRARY_US = {KEYS[0]: 4.0, KEYS[1]: 16.0}


def test_a_critic_that_knows_the_times_explains_the_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.learning.critic_worth.TOKENS", (10,))
    times = [1.0, 1.5, 2.0, 3.5]
    known = rows_of(make_states(times, times, [0, 0, 1, 1]), make_critic(), KEYS, LIBRARY_US)
    assert [row["workload"] for row in known] == ["all", "spmm float32 32", "spmv float32 1"]
    assert [row["programs"] for row in known] == [4, 2, 2]
    assert all(row["explained"] > 0.99 for row in known)
    assert known[0]["library_alone"] < 0.9
    wrong = rows_of(make_states(times[::-1], times, [0, 0, 1, 1]), make_critic(), KEYS, LIBRARY_US)
    assert wrong[0]["explained"] < 0


def test_rewards_are_those_of_milestone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.learning.critic_worth.TOKENS", (10,))
    row, *_ = rows_of(make_states([0.0, 0.0], [1.0, 2.0], [0, 0]), make_critic(), KEYS[:1], LIBRARY_US)
    assert row["reward_variance"] == pytest.approx(((1 - math.log2(1.02)) / 2) ** 2, abs=1e-4)


def test_library_times_are_the_last_suites(tmp_path: Path) -> None:
    def suite(name: str, us: float) -> Path:
        row = {"name": "a", "best_baseline": {"us": us}}
        told = {"operation": "spmv", "element_type": "float32", "num_dense_cols": 1, "rows": [row]}
        (path := tmp_path / name).write_text(json.dumps(told))
        return path

    assert library_times([suite("first", 5.0), suite("second", 4.0)]) == {KEYS[0]: 4.0}


def test_an_interval_is_over_matrices() -> None:
    rewards = np.array([0.0, 1.0, 0.0, 1.0])
    assert explained_interval(["a", "a", "b", "b"], rewards, rewards * 0.5) == [0.75, 0.75]
    assert explained_interval(["a", "a", "b", "b"], rewards, np.array([0.0, 1.0, 0.0, 0.0])) == [0.0, 1.0]
