"""Credit where it is due: one choice of six for each of eight patterns, then 200 tokens that nobody chose.

The policy is a table of logits and the critic a table of values; targets, advantages and losses are the trainer's own.
Everything is sampled with fixed seeds.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from services.trainer.online.algorithm import Forward, LearnerOptions, Rollout
from services.trainer.online.algorithms import algorithm_of
from services.trainer.online.batch import TrainingBatch
from services.trainer.online.critic_record import CriticRecord
from services.trainer.policy_model import TextBatch
from sparsesmith.policy.encoder import PromptBatch

PATTERNS, CHOICES, FORCED, GROUP = 8, 6, 200, 4
NOISE = 0.05
"""Standard deviation of a reward about what its choice is worth, which is between 0 and 1."""
SEEDS = range(4)
UPDATES = 20
OLD_CREDIT = {"gae_lambda": 0.95, "value_targets": "bootstrapped", "advantage_scale": "batch", "critic_gate": 0.0}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Bandit:
    """A policy that has just begun."""

    def __init__(self, seed: int, options: LearnerOptions, critic_rate: float = 0.1) -> None:
        self._random = torch.Generator().manual_seed(seed)
        self._options, self._algorithm = options, algorithm_of(options)
        self._worth = torch.rand(PATTERNS, CHOICES, generator=self._random)
        self._logits = torch.zeros(PATTERNS, CHOICES, requires_grad=True)
        self._before = torch.zeros(PATTERNS, requires_grad=True)
        self._after = torch.zeros(PATTERNS, CHOICES, FORCED, requires_grad=True)
        self._policy = torch.optim.Adam([self._logits], lr=0.12)
        self._critic = torch.optim.Adam([self._before, self._after], lr=critic_rate)
        self.record = CriticRecord()
        self._regret_at_first = self._regret()

    @property
    def regret_left(self) -> float:
        """Share of that of a policy that knows nothing."""
        return self._regret() / self._regret_at_first

    def update(self) -> bool:
        """One batch; whether the policy moved."""
        patterns_B, choices_B, logprobs_B = self._sampled()
        batch = self._batch(patterns_B, choices_B)
        mask_BT = batch.text.sampled_mask_BT.float()
        values_BT, proximal_BT = self._values(patterns_B, choices_B).detach(), _first(logprobs_B)
        self.record = self.record.after(values_BT, batch.reward_B, mask_BT)
        gate = self._options.critic_gate if self._algorithm.needs_critic else 0
        holds = gate == 0 or self.record.explained_variance >= gate
        rollout = Rollout(proximal_BT, values_BT, critic_holds=holds)
        targets = self._algorithm.targets(batch, rollout)
        for _ in range(self._options.epochs):
            current_BT = _first(torch.log_softmax(self._logits, 1)[patterns_B, choices_B])
            forward = Forward(
                current_BT, torch.zeros_like(mask_BT), torch.zeros_like(mask_BT), self._values(patterns_B, choices_B)
            )
            self._step(self._algorithm.losses(forward, rollout, targets, mask_BT).total, holds)
        return holds

    def _step(self, loss: Tensor, policy_moves: bool) -> None:
        self._policy.zero_grad()
        self._critic.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._critic.step()
        if policy_moves:
            self._policy.step()

    @torch.no_grad()
    def _sampled(self) -> tuple[Tensor, Tensor, Tensor]:
        patterns_B = torch.arange(PATTERNS).repeat_interleave(GROUP)
        logprobs = torch.log_softmax(self._logits, 1)
        choices_B = torch.multinomial(logprobs[patterns_B].exp(), 1, generator=self._random)[:, 0]
        return patterns_B, choices_B, logprobs[patterns_B, choices_B]

    def _batch(self, patterns_B: Tensor, choices_B: Tensor) -> TrainingBatch:
        mask_BT = torch.ones(len(patterns_B), 1 + FORCED, dtype=torch.bool)
        noise_B = NOISE * torch.randn(len(patterns_B), generator=self._random)
        nothing = torch.zeros(len(patterns_B), 0)
        return TrainingBatch(
            prompts=PromptBatch(*(nothing for _ in PromptBatch.__dataclass_fields__)),
            text=TextBatch(mask_BT.long(), mask_BT),
            behaviour_BT=_first(torch.log_softmax(self._logits.detach(), 1)[patterns_B, choices_B]),
            temperature_B=torch.ones(len(patterns_B)),
            reward_B=self._worth[patterns_B, choices_B] + noise_B,
            group_B=patterns_B,
            passed_B=torch.ones(len(patterns_B), dtype=torch.bool),
            staleness_B=torch.zeros(len(patterns_B)),
            own_B=torch.ones(len(patterns_B), dtype=torch.bool),
            library_us_B=torch.ones(len(patterns_B)),
        )

    def _values(self, patterns_B: Tensor, choices_B: Tensor) -> Tensor:
        return torch.cat([self._before[patterns_B][:, None], self._after[patterns_B, choices_B]], dim=1)

    def _regret(self) -> float:
        expected = (torch.softmax(self._logits.detach(), 1) * self._worth).sum(dim=1)
        return float((self._worth.amax(dim=1) - expected).mean())


def _first(value_B: Tensor) -> Tensor:
    """At the first token; the others were certain."""
    return torch.cat([value_B[:, None], torch.zeros(len(value_B), FORCED)], dim=1)


@cache
def regret_left(critic_rate: float = 0.1, algorithm: str = "ppo", **changes: Any) -> float:
    """After 20 updates of the policy, mean over the seeds."""
    found = []
    for seed in SEEDS:
        bandit = Bandit(seed, LearnerOptions(algorithm, kl_coefficient=0.0, **changes), critic_rate)
        moves = 0
        for _ in range(100):
            moves += bandit.update()
            if moves == UPDATES:
                break
        assert moves == UPDATES
        found.append(bandit.regret_left)
    return sum(found) / len(found)


@pytest.mark.parametrize("algorithm", ["ppo", "rloo"])
def test_after_20_updates_a_tenth_of_the_regret_is_left_at_most(algorithm: str) -> None:
    assert regret_left(algorithm=algorithm) <= 0.10


def test_a_critic_from_zero_with_lambda_below_one_keeps_most_of_it() -> None:
    assert regret_left(**OLD_CREDIT, group_share=0.0) > 0.20


def test_how_much_it_keeps_is_a_matter_of_how_fast_its_table_fills() -> None:
    fast = regret_left(**OLD_CREDIT, group_share=0.0)
    slow = regret_left(0.01, **OLD_CREDIT, group_share=0.0)
    slowest = regret_left(0.001, **OLD_CREDIT, group_share=0.0)
    assert fast < slow < slowest
    assert slowest > 0.85


def test_half_of_it_is_made_up_for_by_the_groups_and_half_is_not() -> None:
    assert regret_left(**OLD_CREDIT) > 1.5 * regret_left()


def test_the_critic_that_the_policy_waits_for_is_there_within_the_updates_that_it_waits() -> None:
    options = LearnerOptions("ppo", kl_coefficient=0.0)
    for seed in SEEDS:
        bandit = Bandit(seed, options)
        waited = next(number for number in range(100) if bandit.update())
        assert waited <= options.critic_warmup
        assert bandit.record.explained_variance >= options.critic_gate
