"""The loss on fixed tensors against the formulas of CleanRL's PPO (cleanrl/ppo.py at 020cf0e5; MIT licence).

They are written down in NumPy as that file has them: a rollout of one environment in which an episode follows the
other, advantages by GAE over it, one bound `clip_coef` for ratio and value, an entropy bonus (Huang et al. 2022).
CleanRL has neither our importance weights nor groups, reference or uneven bounds: those are off here, and held against
a second implementation in test_second_implementation.py.
"""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from services.trainer.online.advantages import generalized_advantages, terminal_rewards
from services.trainer.online.algorithm import Forward, LearnerOptions, Rollout, Targets
from services.trainer.online.ppo import Ppo

Array = NDArray[np.float64]

LENGTHS = (3, 5, 1, 4)
"""Steps of each episode, or tokens of each program."""
STEPS = sum(LENGTHS)
CLIP_COEF, ENT_COEF, GAE_LAMBDA = 0.2, 0.01, 0.95
ENDS = np.cumsum(LENGTHS) - 1


class Rolled:
    """What a rollout and a forward pass behind it found, a number a step."""

    def __init__(self) -> None:
        random = np.random.default_rng(11)
        self.rewards = np.zeros(STEPS)
        self.rewards[ENDS] = (1.0, -0.4, 0.3, 0.8)
        self.values, self.newvalue = random.normal(size=(2, STEPS))
        self.logprobs = -random.exponential(size=STEPS)
        self.newlogprob = self.logprobs + 0.3 * random.normal(size=STEPS)
        self.entropy = random.uniform(0.1, 2.0, STEPS)


def cleanrl_advantages(rolled: Rolled) -> Array:
    """delta_t = r_t + gamma V_{t+1} (1 - done_{t+1}) - V_t, accumulated backwards by gamma lambda (1 - done_{t+1})."""
    advantages, last = np.zeros(STEPS), 0.0
    for step in range(STEPS - 1, -1, -1):
        goes_on = 0.0 if step in ENDS else 1.0
        following = 0.0 if step == STEPS - 1 else rolled.values[step + 1]
        delta = rolled.rewards[step] + following * goes_on - rolled.values[step]
        last = delta + GAE_LAMBDA * goes_on * last
        advantages[step] = last
    return advantages


def cleanrl_loss(rolled: Rolled, advantages: Array) -> float:
    """mean max(-A r, -A clip(r)) - ent_coef mean H + vf_coef 0.5 mean max((V - R)^2, (V_clipped - R)^2), vf_coef 1."""
    ratio = np.exp(rolled.newlogprob - rolled.logprobs)
    returns = cleanrl_advantages(rolled) + rolled.values
    bounded = np.clip(ratio, 1 - CLIP_COEF, 1 + CLIP_COEF)
    policy = np.maximum(-advantages * ratio, -advantages * bounded).mean()
    near = rolled.values + np.clip(rolled.newvalue - rolled.values, -CLIP_COEF, CLIP_COEF)
    value = 0.5 * np.maximum((rolled.newvalue - returns) ** 2, (near - returns) ** 2).mean()
    return float(policy - ENT_COEF * rolled.entropy.mean() + value)


def programs(steps: Array) -> Tensor:
    """A row an episode, behind a prompt of one token."""
    placed = torch.zeros(len(LENGTHS), 1 + max(LENGTHS), dtype=torch.float64)
    for row, (end, length) in enumerate(zip(ENDS, LENGTHS, strict=True)):
        placed[row, 1 : 1 + length] = torch.tensor(steps[end + 1 - length : end + 1])
    return placed


MASK_BT = programs(np.ones(STEPS))


def our_advantages(rolled: Rolled) -> Tensor:
    rewards_BT = terminal_rewards(torch.tensor(rolled.rewards[ENDS]), MASK_BT)
    return generalized_advantages(rewards_BT, programs(rolled.values), MASK_BT, GAE_LAMBDA)


def test_advantages_are_cleanrls() -> None:
    rolled = Rolled()
    assert torch.allclose(our_advantages(rolled), programs(cleanrl_advantages(rolled)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm_adv", [False, True])
def test_the_loss_is_cleanrls(norm_adv: bool) -> None:
    rolled = Rolled()
    theirs, ours_BT = cleanrl_advantages(rolled), our_advantages(rolled)
    returns_BT = (ours_BT + programs(rolled.values)) * MASK_BT
    if norm_adv:
        theirs = (theirs - theirs.mean()) / (theirs.std(ddof=1) + 1e-8)
        told = ours_BT[MASK_BT > 0]
        ours_BT = (ours_BT - told.mean()) / (told.std() + 1e-8) * MASK_BT
    options = LearnerOptions(
        clip_low=CLIP_COEF, clip_high=CLIP_COEF, value_clip=CLIP_COEF, kl_coefficient=0.0, entropy_coefficient=ENT_COEF
    )
    losses = Ppo(options).losses(
        Forward(
            logprobs_BT=programs(rolled.newlogprob),
            entropy_BT=programs(rolled.entropy),
            kl_reference_BT=torch.zeros_like(MASK_BT),
            values_BT=programs(rolled.newvalue),
        ),
        Rollout(programs(rolled.logprobs), programs(rolled.values)),
        Targets(advantages_BT=ours_BT, returns_BT=returns_BT, weights_BT=MASK_BT),
        MASK_BT,
    )
    assert losses.total.item() == pytest.approx(cleanrl_loss(rolled, theirs), abs=1e-6)
