"""Whether the critic may be asked: how well it foretold the rewards of programs before it learned from them.

Measured at the tenth token of a program (`CRITIC_TOKEN`), against the
reward that the program got in the end: no value of the critic's own is in what it is held against.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from services.trainer.policy_model import CRITIC_TOKEN

HALF_LIFE_RECORDS = 128
"""So many records later a record counts half."""

FEWEST_RECORDS = 64
"""Of full weight; with fewer nothing is said."""

LEAST_VARIANCE = 1e-4
"""Of rewards: with less there is nothing to foretell."""


@dataclass(frozen=True)
class CriticRecord:
    """Sums over records, newer ones counting more."""

    weight: float = 0.0
    rewards: float = 0.0
    reward_squares: float = 0.0
    errors: float = 0.0
    error_squares: float = 0.0
    num_waited: int = 0
    """Updates in which the policy stood still for the critic's sake."""

    def after(self, values_BT: Tensor, rewards_B: Tensor, mask_BT: Tensor) -> "CriticRecord":
        """With a batch that the critic has not learned from."""
        errors_B = rewards_B - values_at_token(values_BT, mask_BT)
        kept = 0.5 ** (len(rewards_B) / HALF_LIFE_RECORDS)
        return CriticRecord(
            weight=kept * self.weight + len(rewards_B),
            rewards=kept * self.rewards + float(rewards_B.sum()),
            reward_squares=kept * self.reward_squares + float(rewards_B.square().sum()),
            errors=kept * self.errors + float(errors_B.sum()),
            error_squares=kept * self.error_squares + float(errors_B.square().sum()),
            num_waited=self.num_waited,
        )

    @property
    def explained_variance(self) -> float:
        """1 - Var(reward - value) / Var(reward); 0 where there are too few records or nothing to foretell."""
        if self.weight < FEWEST_RECORDS:
            return 0.0
        variance = _variance(self.weight, self.rewards, self.reward_squares)
        if variance < LEAST_VARIANCE:
            return 0.0
        return 1 - _variance(self.weight, self.errors, self.error_squares) / variance


def values_at_token(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The critic's value at the tenth sampled token of each program, or at its last: shape [B]."""
    number_BT = mask_BT.cumsum(dim=1) * mask_BT
    wanted_B = mask_BT.sum(dim=1).clamp(max=CRITIC_TOKEN)
    return torch.where(number_BT == wanted_B[:, None], values_BT * mask_BT, torch.zeros_like(values_BT)).sum(dim=1)


def _variance(weight: float, total: float, squares: float) -> float:
    return max(0.0, squares / weight - (total / weight) ** 2)
