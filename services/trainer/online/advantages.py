"""Advantages of sampled programs. Shapes: B sequences, T tokens; `mask_BT` is 1 on tokens that the policy sampled."""

import torch
from torch import Tensor

GAMMA = 1.0
"""No discount: a program is rewarded as a whole."""


def terminal_rewards(rewards_B: Tensor, mask_BT: Tensor) -> Tensor:
    """Each sequence's reward on its last sampled token, zero elsewhere: shape [B, T]."""
    positions_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
    last_B = torch.where(mask_BT.bool(), positions_T, -1).amax(dim=1)
    rewards_BT = torch.zeros_like(mask_BT)
    rewards_BT[torch.arange(len(rewards_B), device=mask_BT.device), last_B] = rewards_B
    return rewards_BT


def generalized_advantages(rewards_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, lam: float) -> Tensor:
    """GAE (Schulman et al. 2016, eq. 16) with gamma = 1: shape [B, T], zero where the mask is.

    The value after the last sampled token is zero: the episode ends there.
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


def mixed_advantages(gae_BT: Tensor, group_B: Tensor, mask_BT: Tensor, group_share: float) -> Tensor:
    """`group_share` of the leave-one-out advantage with the rest of the critic's: shape [B, T]."""
    return ((1 - group_share) * gae_BT + group_share * group_B[:, None]) * mask_BT


def normalized(advantages_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Zero mean and unit standard deviation over the sampled tokens; a constant batch becomes zeros."""
    count = mask_BT.sum()
    mean = (advantages_BT * mask_BT).sum() / count
    variance = ((advantages_BT - mean).square() * mask_BT).sum() / count
    return (advantages_BT - mean) * mask_BT / (variance.sqrt() + 1e-6)
