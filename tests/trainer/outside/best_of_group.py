"""An objective of another package, in one file: imitate the best sample of each group (RAFT; Dong et al. 2023)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from services.trainer.online.algorithm import Forward, LearnerOptions, Losses, Rollout, Targets
from services.trainer.online.batch import TrainingBatch
from services.trainer.online.terms import masked_mean


@dataclass(frozen=True)
class BestOfGroup:
    """See services.trainer.online.algorithm.Algorithm."""

    options: LearnerOptions
    needs_critic: bool = False
    averages_over: Literal["tokens", "programs"] = "tokens"

    def targets(self, batch: TrainingBatch, rollout: Rollout) -> Targets:
        same_BB = batch.group_B[:, None] == batch.group_B[None, :]
        best_B = torch.where(same_BB, batch.reward_B[None, :], -torch.inf).amax(dim=1)
        is_best_BT = (batch.reward_B == best_B).float()[:, None] * batch.text.sampled_mask_BT
        zeros_BT = torch.zeros_like(is_best_BT)
        return Targets(is_best_BT, zeros_BT, zeros_BT)

    def losses(self, current: Forward, rollout: Rollout, targets: Targets, mask_BT: Tensor) -> Losses:
        nothing = current.logprobs_BT.new_zeros(())
        imitation = -masked_mean(current.logprobs_BT * targets.advantages_BT, mask_BT)
        entropy = masked_mean(current.entropy_BT, mask_BT)
        return Losses(imitation, imitation, nothing, nothing, nothing, entropy)


@dataclass(frozen=True)
class Unfinished:
    """Lacks its losses."""

    options: LearnerOptions
    needs_critic: bool = False
    averages_over: Literal["tokens", "programs"] = "tokens"

    def targets(self, batch: TrainingBatch, rollout: Rollout) -> Targets:
        raise NotImplementedError
