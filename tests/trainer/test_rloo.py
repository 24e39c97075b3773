"""RLOO against a second implementation: plain loops over Python floats, written from the paper's equations."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from services.trainer.online.algorithm import Forward, LearnerOptions, Rollout
from services.trainer.online.batch import TrainingBatch
from services.trainer.online.rloo import Rloo
from tests.trainer.records import make_batch, make_record, make_sampled

REWARDS = (1.0, -0.4, 0.25, 0.7, -1.0)
GROUPS = (0, 0, 0, 1, 2)
LENGTHS = (3, 1, 4, 2, 3)
CAP = 1.5


def make_programs() -> TrainingBatch:
    """Five programs of unlike length: three of one prompt, two that are alone with theirs."""
    records = []
    for number, (reward, length) in enumerate(zip(REWARDS, LENGTHS, strict=True)):
        origin = make_sampled(
            group=f"g{GROUPS[number]}", token_ids=tuple(range(1, length + 1)), logprobs=(-1.0 - 0.1 * number,) * length
        )
        records.append(make_record(str(number), reward=reward, origin=origin))
    return make_batch(*records)


def on_mask(batch: TrainingBatch, seed: int, scale: float = 0.3) -> Tensor:
    """Log-probabilities around those of the policy that sampled."""
    noise_BT = torch.randn(batch.behaviour_BT.shape, generator=torch.Generator().manual_seed(seed))
    return (batch.behaviour_BT + scale * noise_BT) * batch.text.sampled_mask_BT


def advantages_by_hand(rewards: Sequence[float], groups: Sequence[int]) -> list[float]:
    """Eq. 8: R(y_i) - 1/(k - 1) * sum of R(y_j), j != i."""
    found = []
    for i, reward in enumerate(rewards):
        others = [rewards[j] for j in range(len(rewards)) if j != i and groups[j] == groups[i]]
        found.append(reward - sum(others) / len(others) if others else 0.0)
    return found


def by_hand(batch: TrainingBatch, proximal: Tensor, current: Tensor, kl_BT: Tensor, kl: float) -> tuple[float, Any]:
    """The loss, and its derivative by each log-probability."""
    advantages = advantages_by_hand(batch.reward_B.tolist(), GROUPS)
    loss, gradient = 0.0, torch.zeros_like(current, dtype=torch.float64)
    num_programs = len(batch)
    for i, j in batch.text.sampled_mask_BT.nonzero().tolist():
        now, start = float(current[i, j]), float(proximal[i, j])
        weight = min(math.exp(start - float(batch.behaviour_BT[i, j])), CAP) * math.exp(now - start)
        loss += (-weight * advantages[i] + kl * float(kl_BT[i, j])) / num_programs
        gradient[i, j] = -weight * advantages[i] / num_programs
    return loss, gradient


@pytest.mark.parametrize("kl", [0.0, 0.05])
def test_the_loss_and_its_gradient_are_those_of_a_second_implementation(kl: float) -> None:
    batch = make_programs()
    mask_BT = batch.text.sampled_mask_BT.float()
    proximal, kl_BT = on_mask(batch, 1), on_mask(batch, 2).abs()
    current = on_mask(batch, 3).requires_grad_()
    rloo = Rloo(LearnerOptions(importance_cap=CAP, kl_coefficient=kl))
    rollout = Rollout(proximal, torch.zeros_like(proximal))
    forward = Forward(current, torch.zeros_like(proximal), kl_BT, torch.zeros_like(proximal))
    losses = rloo.losses(forward, rollout, rloo.targets(batch, rollout), mask_BT)
    losses.total.backward()  # type: ignore[no-untyped-call]
    loss, gradient = by_hand(batch, proximal, current.detach(), kl_BT, kl)
    assert losses.total.item() == pytest.approx(loss, abs=1e-6)
    assert current.grad is not None
    torch.testing.assert_close(current.grad.double(), gradient, rtol=0, atol=1e-6)


def test_advantages_are_left_one_out_and_zero_for_who_is_alone() -> None:
    batch = make_programs()
    zeros = torch.zeros_like(batch.behaviour_BT)
    targets = Rloo(LearnerOptions()).targets(batch, Rollout(zeros, zeros))
    of_programs = targets.advantages_BT.sum(dim=1) / batch.text.sampled_mask_BT.sum(dim=1)
    expected = torch.tensor(advantages_by_hand(REWARDS, GROUPS))
    torch.testing.assert_close(of_programs, expected, rtol=0, atol=1e-6)
    assert of_programs[3:].tolist() == [0, 0]


def test_on_policy_the_gradient_is_that_of_reinforce() -> None:
    batch = make_programs()
    current = batch.behaviour_BT.clone().requires_grad_()
    rloo = Rloo(LearnerOptions(kl_coefficient=0.0))
    rollout = Rollout(batch.behaviour_BT, torch.zeros_like(current))
    targets = rloo.targets(batch, rollout)
    forward = Forward(current, *(torch.zeros_like(current) for _ in range(3)))
    rloo.losses(forward, rollout, targets, batch.text.sampled_mask_BT.float()).total.backward()  # type: ignore[no-untyped-call]
    log_likelihood = batch.behaviour_BT.clone().requires_grad_()
    rewarded_B = torch.tensor(advantages_by_hand(REWARDS, GROUPS))
    (-(rewarded_B * (log_likelihood * batch.text.sampled_mask_BT).sum(dim=1)).mean()).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(current.grad, log_likelihood.grad, rtol=0, atol=1e-6)
