"""Proximal policy optimisation (Schulman et al. 2017). B sequences, T tokens.

Clipping is around the policy at the start of the update; the distance from the one that sampled enters as a truncated
importance weight (decoupled PPO; Hilton et al. 2022).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from services.trainer.online import advantages
from services.trainer.online.algorithm import Forward, LearnerOptions, Losses, Rollout, Targets
from services.trainer.online.batch import TrainingBatch
from services.trainer.online.terms import importance_weights, masked_mean, ratio, told


@dataclass(frozen=True)
class Clip:
    """Bounds of the ratio current / proximal: 1 - low to 1 + high (asymmetric as in DAPO; Yu et al. 2025)."""

    low: float = 0.2
    high: float = 0.28


@dataclass(frozen=True)
class Ppo:
    """Clipped PPO with a critic, whose advantages are mixed with those of the group; see Algorithm."""

    options: LearnerOptions
    needs_critic: bool = True
    averages_over: Literal["tokens", "programs"] = "tokens"

    def targets(self, batch: TrainingBatch, rollout: Rollout) -> Targets:
        """See Algorithm."""
        options, mask_BT = self.options, batch.text.sampled_mask_BT.to(batch.reward_B.dtype)
        gae_BT = advantages.generalized_advantages(
            advantages.terminal_rewards(batch.reward_B, mask_BT),
            rollout.values_BT,
            mask_BT,
            advantages.lambdas(options.gae_lambda, mask_BT),
        )
        return Targets(
            advantages_BT=self._advantages(batch, rollout, gae_BT, mask_BT),
            returns_BT=(
                advantages.monte_carlo_returns(batch.reward_B, mask_BT)
                if options.value_targets == "returns"
                else (gae_BT + rollout.values_BT) * mask_BT
            ),
            weights_BT=importance_weights(rollout.proximal_BT, batch.behaviour_BT, mask_BT, options.importance_cap),
        )

    def _advantages(self, batch: TrainingBatch, rollout: Rollout, gae_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Of the group and of the critic, mixed; of the group alone while the critic does not hold."""
        share = self.options.group_share if rollout.critic_holds else 1.0
        if self.options.advantage_scale == "batch":
            group_B = advantages.leave_one_out(batch.reward_B, batch.group_B)
            mixed_BT = advantages.mixed_advantages(gae_BT, group_B, mask_BT, share)
            return advantages.normalized(mixed_BT, mask_BT) * told(batch.reward_B, batch.group_B)
        best_share = self._best_share(rollout.num_updates)
        group_B = advantages.group_advantages(batch.reward_B, batch.group_B, best_share, self.options.best_of)
        critic_BT = advantages.critic_advantages(gae_BT, mask_BT)
        return advantages.mixed_advantages(critic_BT, group_B, mask_BT, share)

    def _best_share(self, num_updates: int) -> float:
        """Falls to nothing in a straight line; without an end it stays."""
        options = self.options
        left = max(0.0, 1 - num_updates / options.best_updates) if options.best_updates else 1.0
        return options.best_share * left

    def losses(self, current: Forward, rollout: Rollout, targets: Targets, mask_BT: Tensor) -> Losses:
        """See Algorithm."""
        options = self.options
        policy, clip_fraction = policy_loss(
            current.logprobs_BT,
            rollout.proximal_BT,
            targets.weights_BT,
            targets.advantages_BT,
            mask_BT,
            Clip(options.clip_low, options.clip_high),
        )
        value = value_loss(current.values_BT, rollout.values_BT, targets.returns_BT, mask_BT, options.value_clip)
        kl_reference = masked_mean(current.kl_reference_BT, mask_BT)
        entropy = masked_mean(current.entropy_BT, mask_BT)
        total = policy + value + options.kl_coefficient * kl_reference - options.entropy_coefficient * entropy
        return Losses(total, policy, value, kl_reference, clip_fraction, entropy)


def policy_loss(
    current_BT: Tensor, proximal_BT: Tensor, weights_BT: Tensor, advantages_BT: Tensor, mask_BT: Tensor, clip: Clip
) -> tuple[Tensor, Tensor]:
    """The clipped surrogate (eq. 7), negated, and the share of tokens where the clip was active."""
    ratio_BT = ratio(current_BT, proximal_BT)
    clipped_BT = ratio_BT.clamp(1 - clip.low, 1 + clip.high)
    surrogate_BT = torch.minimum(ratio_BT * advantages_BT, clipped_BT * advantages_BT)
    active_BT = (ratio_BT * advantages_BT > clipped_BT * advantages_BT).to(mask_BT.dtype)
    return -masked_mean(weights_BT * surrogate_BT, mask_BT), masked_mean(active_BT, mask_BT)


def value_loss(values_BT: Tensor, old_values_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor, clip: float) -> Tensor:
    """Squared error to the returns; a step away from the old values beyond `clip` is not rewarded."""
    near_BT = old_values_BT + (values_BT - old_values_BT).clamp(-clip, clip)
    error_BT = torch.maximum((values_BT - returns_BT).square(), (near_BT - returns_BT).square())
    return 0.5 * masked_mean(error_BT, mask_BT)
