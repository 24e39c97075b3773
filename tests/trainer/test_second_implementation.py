"""Losses against a second implementation in NumPy, float64, written from the papers with loops over tokens.

PPO in the manner of CleanRL (Huang et al. 2022): ratio, two losses and their maximum, clipped value loss; RLOO in that
of TRL: reward less the mean of the others; KL over all words from logits. Then gradients against finite differences.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from services.trainer.online.algorithm import Algorithm, Forward, LearnerOptions, Losses, Rollout
from services.trainer.online.batch import TrainingBatch
from services.trainer.online.ppo import Ppo
from services.trainer.online.rloo import Rloo
from services.trainer.policy_model import (
    PolicyNetworks,
    TextBatch,
    ValueHead,
    chosen_logprobs,
    divergences,
    entropies,
    placed,
    word_logprobs,
)
from sparsesmith.policy.encoder import PromptBatch
from tests.generator.tiny_policy import HIDDEN, make_policy
from tests.trainer.records import make_batch, make_record, make_sampled

Array = NDArray[np.float64]

WORDS, TOKENS = 7, 6
SPANS = ((1, 4), (1, 6), (2, 5), (0, 3), (1, 2), (0, 6))
"""First and last of each program's tokens, the last one left out."""
GROUPS = (0, 0, 0, 1, 1, 2)
REWARDS = (1.0, -0.4, 0.25, 0.7, 0.72, -1.0)
OPTIONS = LearnerOptions(
    clip_low=0.2, clip_high=0.28, value_clip=0.3, importance_cap=1.4, kl_coefficient=0.05, entropy_coefficient=0.01
)
OLD = {"gae_lambda": 0.9, "value_targets": "bootstrapped", "advantage_scale": "batch"}


class Fixed:
    """Everything that a loss depends on, made once."""

    def __init__(self) -> None:
        random = np.random.default_rng(7)
        shape = (len(SPANS), TOKENS)
        self.logits: dict[str, Array] = {"proximal": random.normal(size=(*shape, WORDS))}
        for name, away in (("current", 0.4), ("reference", 0.7), ("behaviour", 0.3)):
            self.logits[name] = self.logits["proximal"] + away * random.normal(size=(*shape, WORDS))
        self.words = random.integers(0, WORDS, shape)
        self.values = {"old": random.normal(size=shape), "now": random.normal(size=shape)}
        self.temperature = random.uniform(0.7, 1.3, len(SPANS))

    def tokens(self, program: int) -> range:
        return range(*SPANS[program])

    def logprobs(self, policy: str, program: int, token: int) -> Array:
        scaled = self.logits[policy][program, token] / self.temperature[program]
        logprobs: Array = scaled - scaled.max() - math.log(np.exp(scaled - scaled.max()).sum())
        return logprobs

    def chosen(self, policy: str, program: int, token: int) -> float:
        return float(self.logprobs(policy, program, token)[self.words[program, token]])


def others(program: int) -> list[float]:
    return [REWARDS[each] for each in range(len(SPANS)) if each != program and GROUPS[each] == GROUPS[program]]


def left_one_out(program: int) -> float:
    mates = others(program)
    return REWARDS[program] - sum(mates) / len(mates) if mates else 0.0


def spread(program: int) -> float:
    """Gini's mean difference as a standard deviation; of the whole batch for who is alone."""
    rewards = [REWARDS[program], *others(program)]
    rewards = rewards if len(rewards) > 1 else list(REWARDS)
    pairs = [abs(a - b) for i, a in enumerate(rewards) for j, b in enumerate(rewards) if i != j]
    return max(0.05, sum(pairs) / len(pairs) * math.sqrt(math.pi) / 2)


def gae(fixed: Fixed, program: int, lam: float) -> dict[int, float]:
    found, advantage, next_value = {}, 0.0, 0.0
    last = SPANS[program][1] - 1
    for token in reversed(fixed.tokens(program)):
        value = float(fixed.values["old"][program, token])
        delta = (REWARDS[program] if token == last else 0.0) + next_value - value
        advantage = delta + lam * advantage
        found[token], next_value = advantage, value
    return found


def advantages_by_hand(fixed: Fixed, options: LearnerOptions, holds: bool) -> dict[tuple[int, int], float]:
    lam = options.gae_lambda
    assert not isinstance(lam, str)
    places = [(program, token) for program in range(len(SPANS)) for token in fixed.tokens(program)]
    critic = {(p, t): gae(fixed, p, lam)[t] for p, t in places}
    share = options.group_share if holds else 1.0
    if options.advantage_scale == "group":
        size = max(0.05, math.sqrt(sum(each**2 for each in critic.values()) / len(critic)))
        bounded: Callable[[float], float] = lambda value: max(-3.0, min(3.0, value))  # noqa: E731
        return {
            (p, t): (1 - share) * bounded(critic[p, t] / size) + share * bounded(left_one_out(p) / spread(p))
            for p, t in places
        }
    mixed = {(p, t): (1 - share) * critic[p, t] + share * left_one_out(p) for p, t in places}
    mean, deviation = np.mean(list(mixed.values())), np.std(list(mixed.values()))
    return {place: float((value - mean) / (deviation + 1e-6)) for place, value in mixed.items()}


def ppo_by_hand(fixed: Fixed, options: LearnerOptions, holds: bool = True) -> float:
    advantages = advantages_by_hand(fixed, options, holds)
    total = 0.0
    for (program, token), advantage in advantages.items():
        now, start = fixed.chosen("current", program, token), fixed.chosen("proximal", program, token)
        weight = min(math.exp(start - fixed.chosen("behaviour", program, token)), options.importance_cap)
        ratio = math.exp(now - start)
        pg_loss1 = -advantage * ratio
        pg_loss2 = -advantage * min(max(ratio, 1 - options.clip_low), 1 + options.clip_high)
        old, value = fixed.values["old"][program, token], fixed.values["now"][program, token]
        aim = REWARDS[program]
        if options.value_targets == "bootstrapped":
            assert not isinstance(options.gae_lambda, str)
            aim = gae(fixed, program, options.gae_lambda)[token] + old
        v_clipped = old + min(max(value - old, -options.value_clip), options.value_clip)
        v_loss = 0.5 * max((value - aim) ** 2, (v_clipped - aim) ** 2)
        total += weight * max(pg_loss1, pg_loss2) + v_loss + penalties(fixed, options, program, token)
    return total / len(advantages)


def penalties(fixed: Fixed, options: LearnerOptions, program: int, token: int) -> float:
    now, reference = (fixed.logprobs(policy, program, token) for policy in ("current", "reference"))
    kl = float((np.exp(now) * (now - reference)).sum())
    entropy = -float((np.exp(now) * now).sum())
    return options.kl_coefficient * kl - options.entropy_coefficient * entropy


def rloo_by_hand(fixed: Fixed, options: LearnerOptions, holds: bool = True) -> float:
    total = 0.0
    for program in range(len(SPANS)):
        for token in fixed.tokens(program):
            now, start = fixed.chosen("current", program, token), fixed.chosen("proximal", program, token)
            weight = min(math.exp(start - fixed.chosen("behaviour", program, token)), options.importance_cap)
            total -= weight * math.exp(now - start) * left_one_out(program)
            total += penalties(fixed, options, program, token)
    return total / len(SPANS)


def ours(fixed: Fixed, algorithm: Algorithm, current: Tensor, values: Tensor, holds: bool = True) -> Losses:
    """What the trainer computes from the same tensors."""
    batch = as_batch(fixed)
    mask_BT = batch.text.sampled_mask_BT
    temperature_N = batch.temperature_B[:, None].expand(mask_BT.shape)[mask_BT][:, None]
    words = {name: word_logprobs(torch.tensor(logits)[mask_BT], temperature_N) for name, logits in fixed.logits.items()}
    words["current"] = word_logprobs(current[mask_BT], temperature_N)
    chosen = {name: placed(chosen_logprobs(each, batch.text), batch.text) for name, each in words.items()}
    old_BT = torch.tensor(fixed.values["old"]) * mask_BT
    rollout = Rollout(chosen["proximal"], old_BT, critic_holds=holds)
    forward = Forward(
        chosen["current"],
        placed(entropies(words["current"]), batch.text),
        placed(divergences(words["current"], words["reference"]), batch.text),
        values,
    )
    return algorithm.losses(forward, rollout, algorithm.targets(batch, rollout), mask_BT.double())


def as_batch(fixed: Fixed) -> TrainingBatch:
    mask_BT = torch.zeros(len(SPANS), TOKENS, dtype=torch.bool)
    behaviour_BT = torch.zeros(len(SPANS), TOKENS, dtype=torch.float64)
    for program in range(len(SPANS)):
        for token in fixed.tokens(program):
            mask_BT[program, token] = True
            behaviour_BT[program, token] = fixed.chosen("behaviour", program, token)
    nothing = torch.zeros(len(SPANS), 0)
    return TrainingBatch(
        prompts=PromptBatch(nothing, nothing, nothing, nothing, nothing),
        text=TextBatch(torch.tensor(fixed.words), mask_BT),
        behaviour_BT=behaviour_BT,
        temperature_B=torch.tensor(fixed.temperature),
        reward_B=torch.tensor(REWARDS, dtype=torch.float64),
        group_B=torch.tensor(GROUPS),
        passed_B=torch.ones(len(SPANS), dtype=torch.bool),
        staleness_B=torch.zeros(len(SPANS)),
        own_B=torch.ones(len(SPANS), dtype=torch.bool),
        library_us_B=torch.ones(len(SPANS)),
    )


CASES: list[tuple[type[Ppo] | type[Rloo], dict[str, Any], bool]] = [
    (Ppo, {}, True),
    (Ppo, {}, False),
    (Ppo, {"group_share": 0.25, "gae_lambda": 0.8}, True),
    (Ppo, OLD, True),
    (Rloo, {}, True),
]


@pytest.mark.parametrize(("kind", "changes", "holds"), CASES)
def test_the_loss_on_fixed_tensors_is_that_of_the_second_implementation(
    kind: type[Ppo] | type[Rloo], changes: dict[str, Any], holds: bool
) -> None:
    fixed, options = Fixed(), LearnerOptions(**{**vars(OPTIONS), **changes})
    by_hand = ppo_by_hand if kind is Ppo else rloo_by_hand
    losses = ours(fixed, kind(options), torch.tensor(fixed.logits["current"]), torch.tensor(fixed.values["now"]), holds)
    assert losses.total.item() == pytest.approx(by_hand(fixed, options, holds), abs=1e-6)


@pytest.mark.parametrize(("kind", "changes", "holds"), CASES)
def test_its_gradients_are_the_finite_differences_of_the_second_implementation(
    kind: type[Ppo] | type[Rloo], changes: dict[str, Any], holds: bool
) -> None:
    fixed, options = Fixed(), LearnerOptions(**{**vars(OPTIONS), **changes})
    by_hand = ppo_by_hand if kind is Ppo else rloo_by_hand
    current = torch.tensor(fixed.logits["current"], requires_grad=True)
    values = torch.tensor(fixed.values["now"], requires_grad=True)
    ours(fixed, kind(options), current, values, holds).total.backward()  # type: ignore[no-untyped-call]
    assert current.grad is not None
    for program, (first, last) in enumerate(SPANS):
        for place in ((program, first, 2), (program, last - 1, 5)):
            assert float(current.grad[place]) == pytest.approx(
                slope(fixed.logits["current"], place, lambda: by_hand(fixed, options, holds)), abs=1e-6
            )
        if kind is Ppo:
            assert values.grad is not None
            assert float(values.grad[program, first]) == pytest.approx(
                slope(fixed.values["now"], (program, first), lambda: by_hand(fixed, options, holds)), abs=1e-6
            )


def slope(array: Array, place: tuple[int, ...], loss: Callable[[], float], step: float = 1e-5) -> float:
    before = array[place]
    array[place] = before + step
    above = loss()
    array[place] = before - step
    below = loss()
    array[place] = before
    return (above - below) / (2 * step)


def test_the_gradient_of_a_two_layer_model_is_its_finite_difference() -> None:
    networks = two_layers()
    batch, reference_NV, old_BT = begun(networks)
    algorithm = Ppo(OPTIONS)
    rollout = Rollout(batch.behaviour_BT + 0.05 * batch.text.sampled_mask_BT, old_BT)
    targets = algorithm.targets(batch, rollout)
    mask_BT = batch.text.sampled_mask_BT.double()

    def loss() -> Tensor:
        hidden = networks.hidden_states(batch.prompts, batch.text)
        words_NV = networks.distributions(hidden, batch.text, batch.temperature_B)
        forward = Forward(
            placed(chosen_logprobs(words_NV, batch.text), batch.text),
            placed(entropies(words_NV), batch.text),
            placed(divergences(words_NV, reference_NV), batch.text),
            networks.values(hidden, batch.prompts, batch.text),
        )
        return algorithm.losses(forward, rollout, targets, mask_BT).total

    parameters = list(networks.parameters())
    gradients = torch.autograd.grad(loss(), parameters, allow_unused=True)
    told = [(each, gradient) for each, gradient in zip(parameters, gradients, strict=True) if gradient is not None]
    assert len(told) > 20
    for parameter, gradient in told[::2]:
        steepest = gradient / gradient.norm()
        assert along(parameter, steepest, loss) == pytest.approx(float(gradient.norm()), rel=2e-3, abs=1e-5)


def two_layers() -> PolicyNetworks:
    policy = make_policy()
    torch.manual_seed(0)
    networks = PolicyNetworks(policy.model, policy.encoder, ValueHead(HIDDEN)).double()
    assert networks.value_head is not None
    with torch.no_grad():
        for parameter in networks.value_head.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, dtype=torch.float64))
    return networks


def begun(networks: PolicyNetworks) -> tuple[TrainingBatch, Tensor, Tensor]:
    """A batch that was sampled a little away from the policy; the shipped policy's words; the critic before."""
    records = [
        make_record(
            str(n), reward=n / 3 - 0.4, origin=make_sampled(group=f"g{n % 2}", token_ids=tuple(range(20, 24 + n)))
        )
        for n in range(4)
    ]
    batch = make_batch(*records)
    wide = {name: each.double() if each.is_floating_point() else each for name, each in vars(batch.prompts).items()}
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        prompts = PromptBatch(**wide)
        hidden = networks.hidden_states(prompts, batch.text)
        words_NV = networks.distributions(hidden, batch.text, batch.temperature_B)
        behaviour_BT = placed(chosen_logprobs(words_NV, batch.text), batch.text)
        away_NV = 0.3 * torch.randn(words_NV.shape, generator=random, dtype=torch.float64)
        fields = {**vars(batch), "prompts": prompts, "behaviour_BT": behaviour_BT, "reward_B": batch.reward_B.double()}
        old_BT = networks.values(hidden, batch.prompts, batch.text) + 0.2
    return TrainingBatch(**fields), torch.log_softmax(words_NV + away_NV, -1), old_BT * batch.text.sampled_mask_BT


@torch.no_grad()
def along(parameter: torch.nn.Parameter, direction: Tensor, loss: Callable[[], Tensor], step: float = 1e-3) -> float:
    """Central difference of the loss. The model's norms are in float32 whatever its weights: no smaller step."""
    found = []
    for sign in (1, -2, 1):
        parameter.add_(sign * step * direction)
        found.append(float(loss()))
    return (found[0] - found[1]) / (2 * step)
