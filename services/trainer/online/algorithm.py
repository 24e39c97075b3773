"""What an update optimises, as a thing: targets from what was known of a batch, losses of what the policy says now.

The learner owns the rest for all of them: forward passes, minibatches, optimizers and the trust region.
B sequences, T tokens; `*_BT` is float32 and 0 where nothing was sampled.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from services.trainer.online.batch import TrainingBatch

ValueTargets = Literal["returns", "bootstrapped"]
AdvantageScale = Literal["group", "batch"]


@dataclass(frozen=True)
class LearnerOptions:
    """How to update; the fields of `TrainerSettings` that concern it, where each is explained."""

    algorithm: str = "rloo"
    epochs: int = 2
    minibatch_records: int = 8
    micro_batch_tokens: int = 2048
    matrix_rate: float = 1e-4
    other_rate: float = 3e-5
    adapter_rate: float = 1e-4
    value_rate: float = 1e-3
    clip_low: float = 0.2
    clip_high: float = 0.28
    value_clip: float = 0.5
    importance_cap: float = 2.0
    gae_lambda: float | Literal["length"] = 1.0
    group_share: float = 0.5
    value_targets: ValueTargets = "returns"
    advantage_scale: AdvantageScale = "group"
    best_of: int = 4
    best_share: float = 0.0
    best_updates: int = 0
    critic_gate: float = 0.5
    critic_warmup: int = 20
    kl_coefficient: float = 0.02
    entropy_coefficient: float = 0.0
    imitation_share: float = 0.0
    program_kl_limit: float = 0.2
    reference_kl_alarm: float = 5.0
    max_grad_norm: float = 1.0


@dataclass(frozen=True)
class Rollout:
    """What was known of a batch before the update."""

    proximal_BT: Tensor
    """Log-probabilities under the policy at the start of the update."""
    values_BT: Tensor
    """The critic's; zeros where the algorithm needs none."""
    critic_holds: bool = True
    """Whether the critic foretells rewards well enough to be asked (`critic_record`)."""
    num_updates: int = 0
    """By which the policy was moved before."""


@dataclass(frozen=True)
class Targets:
    """What the update aims at."""

    advantages_BT: Tensor
    returns_BT: Tensor
    """What the critic should say; zeros where there is none."""
    weights_BT: Tensor
    """Truncated importance weights, proximal / behaviour."""


@dataclass(frozen=True)
class Forward:
    """What policy and critic say of a micro-batch now, with gradients."""

    logprobs_BT: Tensor
    entropy_BT: Tensor
    kl_reference_BT: Tensor
    """KL(current || shipped policy) of each token's distribution, over all words: exact, in nats."""
    values_BT: Tensor
    """Zeros where the algorithm needs no critic."""


@dataclass(frozen=True)
class Losses:
    """Of one micro-batch."""

    total: Tensor
    """What is minimised: a mean over what the algorithm `averages_over`."""
    policy: Tensor
    """This and those below are told in metrics: means over tokens."""
    value: Tensor
    kl_reference: Tensor
    clip_fraction: Tensor
    entropy: Tensor


class Algorithm(Protocol):
    """One objective of reinforcement learning, chosen by the name under which the catalogue has it."""

    @property
    def needs_critic(self) -> bool:
        """Whether a value head is there and trained."""
        ...

    @property
    def averages_over(self) -> Literal["tokens", "programs"]:
        """What `Losses.total` is a mean over: a micro-batch counts in its minibatch by its number of these."""
        ...

    def targets(self, batch: TrainingBatch, rollout: Rollout) -> Targets:
        """Of a whole batch, without gradients."""
        ...

    def losses(self, current: Forward, rollout: Rollout, targets: Targets, mask_BT: Tensor) -> Losses:
        """Of some sequences; `mask_BT` is 1 on sampled tokens."""
        ...
