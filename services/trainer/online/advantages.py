"""Advantages of sampled programs. Shapes: B sequences, T tokens; `mask_BT` is 1 on tokens that the policy sampled."""

import math
from typing import Literal

import torch
from torch import Tensor

GAMMA = 1.0
"""No discount: a program is rewarded as a whole."""

CREDIT_LENGTHS = 2.0
"""With lambda by length: the lengths of a program over which credit falls by a factor of e."""

REWARD_NOISE = 0.05
"""In units of reward. The order in which programs are timed moves a brief time by 3.5 % in the median
(benchmarks/results/h200/order-independence.json): 0.05 of a binary logarithm."""

MOST_SPREADS = 3.0
"""No advantage is larger, in spreads of its group: a sample that is far from all others counts as far, not as more."""


def terminal_rewards(rewards_B: Tensor, mask_BT: Tensor) -> Tensor:
    """Each sequence's reward on its last sampled token, zero elsewhere: shape [B, T]."""
    positions_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
    last_B = torch.where(mask_BT.bool(), positions_T, -1).amax(dim=1)
    rewards_BT = torch.zeros_like(mask_BT)
    rewards_BT[torch.arange(len(rewards_B), device=mask_BT.device), last_B] = rewards_B
    return rewards_BT


def monte_carlo_returns(rewards_B: Tensor, mask_BT: Tensor) -> Tensor:
    """What came of each token: with gamma = 1 the reward of its program, at every sampled token; shape [B, T]."""
    return rewards_B[:, None] * mask_BT


def lambdas(setting: float | Literal["length"], mask_BT: Tensor) -> Tensor:
    """Lambda of each sequence, shape [B]: the same for all, or 1 - 1 / (CREDIT_LENGTHS x its sampled tokens), so that a
    reward reaches the first token of a long program as well as that of a short one (VAPO; Yue et al. 2025)."""
    if setting != "length":
        return torch.full_like(mask_BT[:, 0], setting)
    return 1 - 1 / (CREDIT_LENGTHS * mask_BT.sum(dim=1).clamp(min=1))


def generalized_advantages(rewards_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, lam: float | Tensor) -> Tensor:
    """GAE (Schulman et al. 2016, eq. 16) with gamma = 1: shape [B, T], zero where the mask is.

    The value after the last sampled token is zero: the episode ends there. `lam`: one for all, or of shape [B].
    """
    advantages_BT = torch.zeros_like(values_BT)
    next_value_B = torch.zeros_like(values_BT[:, 0])
    next_advantage_B = torch.zeros_like(values_BT[:, 0])
    for step in reversed(range(values_BT.shape[1])):
        mask_B = mask_BT[:, step]
        delta_B = rewards_BT[:, step] + GAMMA * next_value_B - values_BT[:, step]
        advantage_B = delta_B + GAMMA * lam * next_advantage_B
        advantages_BT[:, step] = advantage_B * mask_B
        next_value_B = torch.where(mask_B > 0, values_BT[:, step], next_value_B)
        next_advantage_B = torch.where(mask_B > 0, advantage_B, next_advantage_B)
    return advantages_BT


def leave_one_out(rewards_B: Tensor, groups_B: Tensor) -> Tensor:
    """Reward minus the mean reward of the other samples of its group (RLOO; Ahmadian et al. 2024): shape [B].

    A sample alone in its group gets zero: nothing is there to compare it with.
    """
    same_BB = (groups_B[:, None] == groups_B[None, :]).to(rewards_B.dtype)
    others_B = same_BB.sum(dim=1) - 1
    baseline_B = (same_BB @ rewards_B - rewards_B) / others_B.clamp(min=1)
    return torch.where(others_B > 0, rewards_B - baseline_B, torch.zeros_like(rewards_B))


def leave_one_out_best(rewards_B: Tensor, groups_B: Tensor, k: int) -> Tensor:
    """What each sample adds to the best of k (at least 2): shape [B], never negative.

    The mean over all choices of k - 1 others of its group of max(0, reward - best of those): the best of the k less
    what it would be without this sample, whose expectation has the gradient of E[best of k] (PKPO, Walder and Karkhanis
    2025, with each subset's own baseline). In a group of fewer than k: of as many as there are; zero for who is alone.
    """
    found_B = torch.zeros_like(rewards_B)
    for row, (reward, group) in enumerate(zip(rewards_B, groups_B, strict=True)):
        mates = groups_B == group
        mates[row] = False
        others = rewards_B[mates].sort().values
        if len(others):
            chances = torch.tensor(_chances_of_best(len(others), min(k - 1, len(others))), device=rewards_B.device)
            found_B[row] = (chances.to(others.dtype) * (reward - others).clamp(min=0)).sum()
    return found_B


def _chances_of_best(count: int, chosen: int) -> list[float]:
    """That the i-th smallest of `count` is the best of `chosen` of them, taken without putting back."""
    return [math.comb(number, chosen - 1) / math.comb(count, chosen) for number in range(count)]


def group_spreads(rewards_B: Tensor, groups_B: Tensor) -> Tensor:
    """How far the rewards of each sample's group lie apart, but at least REWARD_NOISE: shape [B].

    The mean absolute difference of two of its rewards (Gini's), times sqrt(pi) / 2: the standard deviation of a normal
    distribution. An outlier counts by its distance, not by the square of it; the median of deviations, which is more
    robust, is zero as soon as half of a group are equal. Of who is alone: the spread of the whole batch.
    """
    same_BB = (groups_B[:, None] == groups_B[None, :]).to(rewards_B.dtype)
    of_groups_B, others_B = _mean_differences(rewards_B, same_BB)
    of_batch_B, _ = _mean_differences(rewards_B, torch.ones_like(same_BB))
    differences_B = torch.where(others_B > 0, of_groups_B, of_batch_B)
    return (differences_B * math.sqrt(math.pi) / 2).clamp(min=REWARD_NOISE)


def _mean_differences(rewards_B: Tensor, same_BB: Tensor) -> tuple[Tensor, Tensor]:
    """Over ordered pairs of different samples that are the same group's; how many others each has."""
    apart_BB = (rewards_B[:, None] - rewards_B[None, :]).abs() * same_BB
    sizes_B = same_BB.sum(dim=1)
    pairs_B = (sizes_B * (sizes_B - 1)).clamp(min=1)
    return same_BB @ apart_BB.sum(dim=1) / pairs_B, sizes_B - 1


def group_advantages(rewards_B: Tensor, groups_B: Tensor, best_share: float = 0.0, best_of: int = 4) -> Tensor:
    """Leave-one-out in spreads of the sample's group: shape [B]. `best_share` of it for what the sample adds to the
    best of `best_of`, the rest for what it is above the mean."""
    added_B = leave_one_out(rewards_B, groups_B)
    if best_share > 0:
        added_B = (1 - best_share) * added_B + best_share * leave_one_out_best(rewards_B, groups_B, best_of)
    return within_bounds(added_B / group_spreads(rewards_B, groups_B))


def critic_advantages(gae_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """In units of their root mean square over the batch's sampled tokens, or of REWARD_NOISE where that is more: shape
    [B, T]. They are not centred: a critic that holds is right on average."""
    mean_square = (gae_BT.square() * mask_BT).sum() / mask_BT.sum().clamp(min=1)
    return within_bounds(gae_BT / mean_square.sqrt().clamp(min=REWARD_NOISE))


def within_bounds(advantages: Tensor) -> Tensor:
    """At most MOST_SPREADS either way."""
    return advantages.clamp(-MOST_SPREADS, MOST_SPREADS)


def mixed_advantages(gae_BT: Tensor, group_B: Tensor, mask_BT: Tensor, group_share: float) -> Tensor:
    """`group_share` of the leave-one-out advantage with the rest of the critic's: shape [B, T]."""
    return ((1 - group_share) * gae_BT + group_share * group_B[:, None]) * mask_BT


def normalized(advantages_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Zero mean and unit standard deviation over the sampled tokens; a constant batch becomes zeros."""
    count = mask_BT.sum()
    mean = (advantages_BT * mask_BT).sum() / count
    variance = ((advantages_BT - mean).square() * mask_BT).sum() / count
    return (advantages_BT - mean) * mask_BT / (variance.sqrt() + 1e-6)
