"""REINFORCE with a leave-one-out baseline (Ahmadian et al. 2024, eq. 8): no critic. B sequences, T tokens.

A program is one action. Its advantage is its reward less the mean reward of the other samples of its prompt, neither
normalised nor clipped: what a step may change is bounded by the learner's trust region alone. Where an update takes
several steps, or samples are older than the policy, each token counts with its truncated importance weight.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from services.trainer.online.advantages import leave_one_out
from services.trainer.online.algorithm import Forward, LearnerOptions, Losses, Rollout, Targets
from services.trainer.online.batch import TrainingBatch
from services.trainer.online.terms import importance_weights, masked_mean, program_mean, ratio


@dataclass(frozen=True)
class Rloo:
    """Samples that are alone in their group teach nothing; see Algorithm."""

    options: LearnerOptions
    needs_critic: bool = False
    averages_over: Literal["tokens", "programs"] = "programs"

    def targets(self, batch: TrainingBatch, rollout: Rollout) -> Targets:
        """See Algorithm."""
        mask_BT = batch.text.sampled_mask_BT.to(batch.reward_B.dtype)
        return Targets(
            advantages_BT=leave_one_out(batch.reward_B, batch.group_B)[:, None] * mask_BT,
            returns_BT=torch.zeros_like(mask_BT),
            weights_BT=importance_weights(
                rollout.proximal_BT, batch.behaviour_BT, mask_BT, self.options.importance_cap
            ),
        )

    def losses(self, current: Forward, rollout: Rollout, targets: Targets, mask_BT: Tensor) -> Losses:
        """See Algorithm. The gradient of the ratio is that of the log-probability, times the ratio."""
        options, nothing = self.options, current.logprobs_BT.new_zeros(())
        ratio_BT = ratio(current.logprobs_BT, rollout.proximal_BT)
        policy_BT = -targets.weights_BT * ratio_BT * targets.advantages_BT
        total_BT = (
            policy_BT
            + options.kl_coefficient * current.kl_reference_BT
            - options.entropy_coefficient * current.entropy_BT
        )
        return Losses(
            total=program_mean(total_BT, mask_BT),
            policy=masked_mean(policy_BT, mask_BT),
            value=nothing,
            kl_reference=masked_mean(current.kl_reference_BT, mask_BT),
            clip_fraction=nothing,
            entropy=masked_mean(current.entropy_BT, mask_BT),
        )
