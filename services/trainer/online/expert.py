"""Expert iteration (Anthony et al. 2017): the best samples of each prompt are imitated. B sequences, T tokens.

What reinforcement learning has to beat on the same records: the loss is that of supervised training on the fastest
quarter of each group, and no sample is pushed away from.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from services.trainer.online.advantages import leave_one_out
from services.trainer.online.algorithm import Forward, LearnerOptions, Losses, Rollout, Targets
from services.trainer.online.batch import TrainingBatch
from services.trainer.online.terms import importance_weights, masked_mean

BEST_SHARE = 0.25
"""Of a group, at least one of its samples: those are imitated that passed and are above the mean of the others."""


@dataclass(frozen=True)
class Expert:
    """Groups of equal rewards, and of failures alone, teach nothing; see Algorithm."""

    options: LearnerOptions
    needs_critic: bool = False
    averages_over: Literal["tokens", "programs"] = "tokens"

    def targets(self, batch: TrainingBatch, rollout: Rollout) -> Targets:
        """See Algorithm. Weights are told, not used: what was imitated may be of any policy."""
        mask_BT = batch.text.sampled_mask_BT.to(batch.reward_B.dtype)
        chosen_B = best_of_groups(batch.reward_B, batch.group_B) & batch.passed_B
        return Targets(
            advantages_BT=chosen_B[:, None].to(mask_BT.dtype) * mask_BT,
            returns_BT=torch.zeros_like(mask_BT),
            weights_BT=importance_weights(
                rollout.proximal_BT, batch.behaviour_BT, mask_BT, self.options.importance_cap
            ),
        )

    def losses(self, current: Forward, rollout: Rollout, targets: Targets, mask_BT: Tensor) -> Losses:
        """See Algorithm."""
        options, nothing = self.options, current.logprobs_BT.new_zeros(())
        imitation = -masked_mean(current.logprobs_BT * targets.advantages_BT, mask_BT)
        kl_reference = masked_mean(current.kl_reference_BT, mask_BT)
        entropy = masked_mean(current.entropy_BT, mask_BT)
        total = imitation + options.kl_coefficient * kl_reference - options.entropy_coefficient * entropy
        return Losses(total, imitation, nothing, kl_reference, nothing, entropy)


def best_of_groups(rewards_B: Tensor, groups_B: Tensor) -> Tensor:
    """Whether a sample is among the best BEST_SHARE of its group, and above the mean of the others: shape [B]."""
    same_BB = groups_B[:, None] == groups_B[None, :]
    ahead_B = (same_BB & (rewards_B[None, :] > rewards_B[:, None])).sum(dim=1)
    most_B = (BEST_SHARE * same_BB.sum(dim=1)).clamp(min=1)
    return (ahead_B < most_B) & (leave_one_out(rewards_B, groups_B) > 0)
