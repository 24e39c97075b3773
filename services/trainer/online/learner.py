"""One policy update on a batch of graded programs. B sequences, T text tokens; `*_BT` is 0 where not sampled.

The order is the textbook's: what the policy, the critic and the reference say of the batch before the update; targets
(returns and advantages); then a few epochs of minibatches, ended early where the policy has moved far enough. What is
optimised is the algorithm's, chosen by name (`algorithms`), and only one that needs a critic (`ppo`) has one: until
that holds the policy stands still, for some updates at most (`critic_record`).

The critic reads the language model's hidden states and does not train them: an untrained value head would bend the
policy's features in its first updates, and the head alone learns fast enough on features that already know the matrix.
One that began as a value model has features of its own (`value_critic`).
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from services.trainer.online.algorithm import Forward, LearnerOptions, Losses, Rollout, Targets
from services.trainer.online.algorithms import algorithm_of
from services.trainer.online.batch import SampleBatch, TrainingBatch
from services.trainer.online.critic_record import CriticRecord
from services.trainer.online.imitation import mixed
from services.trainer.online.ranks import Ranks
from services.trainer.online.snapshot import Snapshot
from services.trainer.online.terms import explained_variance, program_mean, told
from services.trainer.optimizers import Optimizer
from services.trainer.policy_model import (
    PolicyRates,
    StateCritic,
    TrainedPolicy,
    chosen_logprobs,
    divergences,
    entropies,
    placed,
)
from services.trainer.precision import precision

log = logging.getLogger(__name__)

MOST_TOKEN_GAP, MOST_PROGRAM_GAP = 0.02, 0.15
"""Nats between the engine's and our log-probabilities under the same weights, a telling token and a program; more hints
at a defect."""

SMALLEST_SHARE = 1 / 64
"""Of an update: one that must be shortened to less is taken back whole."""

PROGRESS_S = 5.0
"""Between two lines of the log within an update."""

TELLING_ENTROPY = 0.1
"""Nats. Tokens whose distribution has less are forced by the language, and any engine agrees on them."""

ALONE = Ranks()

NOT_MOVED = {"program_kl": 0.0, "kept_share": 1.0}

CRITIC_PREFIX = "value_head."
"""Of the critic's tensors in a state."""

Metrics = dict[str, float]
Tensors = TypeVar("Tensors", Rollout, Targets)


class Stopped(Exception):
    """The service must end; the update in hand is abandoned and must not be kept."""


@dataclass(frozen=True)
class Gap:
    """How far other log-probabilities are from ours, in nats."""

    per_token: float
    """Mean absolute difference over telling tokens."""
    per_program: float
    """Mean over programs of the absolute value of the sum of their tokens' differences."""
    num_tokens: int
    """Telling tokens."""


@dataclass(frozen=True)
class Order:
    """What processes that follow need for an update."""

    state: Mapping[str, Any] | None
    """None: they have it."""
    batch: TrainingBatch
    step_scale: float
    examples: SampleBatch | None


@dataclass(frozen=True)
class Start:
    """Where an update begins, and what was known there of its batch."""

    batch: TrainingBatch
    rollout: Rollout
    proximal: Snapshot
    """Of the policy as the update begins."""
    reference: Snapshot
    """Of the shipped policy."""
    weights: list[Tensor]
    """Of the policy."""


class Learner:
    """The policy in training, its critic, its frozen reference and its optimizers."""

    def __init__(
        self,
        networks: TrainedPolicy,
        options: LearnerOptions,
        device: str = "cpu",
        seed: int = 0,
        ranks: Ranks = ALONE,
    ) -> None:
        """`networks` are the supervised policy with a value head, which is put away where the algorithm needs no
        critic: trained in place, and copied as the reference. Raises InvalidOption for an unknown algorithm."""
        self._algorithm = algorithm_of(options)
        if not self._algorithm.needs_critic:
            networks.value_head = None
        elif networks.value_head is None:
            raise ValueError(f"algorithm {options.algorithm}: the learner needs networks with a value head")
        self.networks = networks.to(device).eval()
        self.reference = self.networks.shipped()
        self._options = options
        self._device = device
        self._ranks = ranks
        self._is_shared = False
        """Whether the processes that follow have this state."""
        self._policy_optimizer = self._new_policy_optimizer()
        self._value_optimizer = self._new_value_optimizer()
        self._random = torch.Generator().manual_seed(seed)
        self._critic_record = CriticRecord()
        self._num_updates = 0

    def update(
        self,
        batch: TrainingBatch,
        must_stop: Callable[[], bool] = lambda: False,
        step_scale: float = 1.0,
        examples: SampleBatch | None = None,
    ) -> Metrics:
        """Improve the policy on a batch. Raises Stopped where `must_stop`, asked every few seconds, says so.

        `step_scale`: of the policy's learning rates, at most 1. `examples`: programs to imitate, which are
        `imitation_share` of each step.
        """
        if self._ranks.leads:
            state = None if self._is_shared else self.state_dict()
            self._ranks.tell(Order(state, batch, step_scale, examples))
            self._is_shared = True
        batch = batch.to(self._device)
        examples = None if examples is None else examples.to(self._device)
        gap = self._engine_gap(batch)
        start, record = self._known(batch, must_stop)
        targets = self._algorithm.targets(batch, start.rollout)
        waits = not start.rollout.critic_holds and record.num_waited < self._options.critic_warmup
        step_size = 0.0 if waits else step_scale * float(told(batch.reward_B, batch.group_B))
        tally, progress = _Tally(), _Progress()
        minibatches = list(self._minibatches(len(batch)))
        for number, minibatch in enumerate(minibatches):
            losses = self._accumulate(start, targets, minibatch, must_stop, policy_moves=step_size > 0)
            if not losses["program_kl"] <= self._options.program_kl_limit:
                self.networks.zero_grad(set_to_none=True)
                tally.stopped_early = True
                break
            if examples is not None and step_size > 0:
                losses["imitation"] = self._imitate(examples, must_stop)
            tally.add(losses, self._step(step_size))
            progress.tell(number + 1, len(minibatches), losses)
        trust = self._keep_near(start, must_stop) if step_size > 0 else NOT_MOVED
        self._critic_record = replace(record, num_waited=record.num_waited + waits)
        metrics = _batch_metrics(batch, start.rollout, targets) | tally.metrics() | trust | gap
        metrics |= self._critic_metrics(start.rollout)
        metrics["policy_moved"] = float(step_size > 0 and metrics["steps"] > 0 and metrics["kept_share"] > 0)
        self._num_updates += int(metrics["policy_moved"])
        self._ranks.agree([parameter.data for parameter in self.networks.trained_parameters()])
        self._sound_alarms(metrics)
        return metrics

    def follow(self) -> int:
        """Make the updates that the first process makes, until it is dismissed; how many."""
        num_updates = 0
        while isinstance(order := self._ranks.told(), Order):
            if order.state is not None:
                self.load_state_dict(order.state)
            self.update(order.batch, step_scale=order.step_scale, examples=order.examples)
            num_updates += 1
        return num_updates

    def dismiss(self) -> None:
        """Those that follow are not needed any more."""
        if self._ranks.leads:
            self._ranks.tell(None)

    @torch.no_grad()
    def logprobs(self, batch: SampleBatch) -> Tensor:
        """Log-probability of each sampled token under the policy as it is, at its sampling temperature: [B, T]."""
        return self._forward(self.networks, batch.to(self._device))[1]

    @torch.no_grad()
    def published_gap(self, batch: SampleBatch, *, shipped: bool) -> Gap:
        """How far a batch's log-probabilities are from those of our weights as they are published, in bfloat16; or from
        the shipped policy's."""
        batch, gaps = batch.to(self._device), _Gaps()
        with nullcontext(self.reference) if shipped else self.networks.rounded() as networks:
            for rows in self._micro_batches(batch, range(len(batch))):
                part = batch.rows(rows)
                _, logprobs_BT, entropy_BT = self._forward(networks, part)
                gaps.add(part.behaviour_BT - logprobs_BT, entropy_BT)
        return gaps.gap()

    def restart_from(self, published: Path) -> None:
        """Take a published policy's weights; the critic stays, the policy's optimizer starts afresh."""
        self._is_shared = False
        self.networks.take_published(published)
        self._policy_optimizer = self._new_policy_optimizer()

    def restart_from_reference(self) -> None:
        """Take the shipped policy's weights."""
        self._is_shared = False
        self.networks.return_to(self.reference)
        self._policy_optimizer = self._new_policy_optimizer()

    def state_dict(self) -> dict[str, object]:
        """Networks and optimizers, for a checkpoint. The reference comes from the policy's folder."""
        return {
            "networks": self.networks.kept_state(),
            "policy_optimizer": self._policy_optimizer.state_dict(),
            "value_optimizer": None if self._value_optimizer is None else self._value_optimizer.state_dict(),
            "random": self._random.get_state(),
            "critic_record": asdict(self._critic_record),
            "num_updates": self._num_updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`. Of one that another algorithm left, the critic is left out, or starts afresh."""
        self._is_shared = False
        self._critic_record = CriticRecord()
        self._num_updates = int(state.get("num_updates", 0))
        policy = {name: tensor for name, tensor in state["networks"].items() if not name.startswith(CRITIC_PREFIX)}
        critic = {name: tensor for name, tensor in state["networks"].items() if name not in policy}
        own = {name: tensor for name, tensor in self.networks.kept_state().items() if name.startswith(CRITIC_PREFIX)}
        if self._value_optimizer is not None and critic.keys() == own.keys():
            policy |= critic
            self._value_optimizer.load_state_dict(state["value_optimizer"])
            self._critic_record = CriticRecord(**state.get("critic_record", {}))
        elif self._value_optimizer is not None:
            log.warning("the state was left by an algorithm without this critic: a fresh one is trained")
            policy |= own
        self.networks.take_state(policy)
        self._policy_optimizer.load_state_dict(state["policy_optimizer"])
        self._random.set_state(state["random"])

    def _new_value_optimizer(self) -> Optimizer | None:
        if self.networks.value_head is None:
            return None
        options = self._options
        learned = [self.networks.value_head]
        return Optimizer(learned, matrix_rate=options.matrix_rate, other_rate=options.value_rate, decay=0.0)

    def _new_policy_optimizer(self) -> Optimizer:
        options = self._options
        rates = PolicyRates(options.matrix_rate, options.other_rate, options.adapter_rate)
        return self.networks.policy_optimizer(rates)

    def _known(self, batch: TrainingBatch, must_stop: Callable[[], bool]) -> tuple[Start, CriticRecord]:
        """What was known of a batch before the update, and the critic's record with it."""
        start, record = self._start(batch, must_stop), self._critic_record
        if not self._algorithm.needs_critic:
            return start, record
        record = record.after(start.rollout.values_BT, batch.reward_B, _mask(batch))
        gate = self._options.critic_gate
        holds = gate == 0 or record.explained_variance >= gate
        return replace(start, rollout=replace(start.rollout, critic_holds=holds)), record

    def _engine_gap(self, batch: TrainingBatch) -> Metrics:
        """How far the engine was from our weights as published; of records of exactly our version, where there are."""
        own = [row for row, is_own in enumerate(batch.own_B.tolist()) if is_own]
        if not own:
            return {}
        gap = self.published_gap(batch.rows(own), shipped=False)
        return {"logprob_gap": gap.per_token, "logprob_gap_program": gap.per_program}

    def _sound_alarms(self, metrics: Metrics) -> None:
        """In the log, for whoever runs the service; the metrics say the same in numbers."""
        per_token, per_program = metrics.get("logprob_gap", 0.0), metrics.get("logprob_gap_program", 0.0)
        if not (per_token <= MOST_TOKEN_GAP and per_program <= MOST_PROGRAM_GAP):
            log.warning(
                "the engine's log-probabilities are %.3f nats a telling token and %.3f a program off ours "
                "(alarm beyond %g and %g)",
                per_token, per_program, MOST_TOKEN_GAP, MOST_PROGRAM_GAP,
            )  # fmt: skip
        if metrics["program_kl_reference"] > self._options.reference_kl_alarm:
            log.warning(
                "the policy is %.1f nats a program from the shipped one (alarm beyond %g)",
                metrics["program_kl_reference"], self._options.reference_kl_alarm,
            )  # fmt: skip

    def _critic_metrics(self, rollout: Rollout) -> Metrics:
        if not self._algorithm.needs_critic:
            return {}
        return {
            "explained_variance_10": self._critic_record.explained_variance,
            "critic_holds": float(rollout.critic_holds),
        }

    @torch.no_grad()
    def _start(self, batch: TrainingBatch, must_stop: Callable[[], bool]) -> Start:
        proximal_BT, values_BT = (torch.zeros_like(batch.behaviour_BT) for _ in range(2))
        proximal, reference = (Snapshot(networks.output_layer) for networks in (self.networks, self.reference))
        for rows in self._micro_batches(batch, range(len(batch))):
            _stop_if(must_stop)
            part = batch.rows(rows)
            length = part.behaviour_BT.shape[1]
            hidden, logprobs_BT, _ = self._forward(self.networks, part)
            proximal_BT[rows, :length] = logprobs_BT
            values_BT[rows, :length] = self._values(hidden, part) * part.text.sampled_mask_BT
            proximal.keep(rows, hidden, part)
            reference.keep(rows, self._forward(self.reference, part)[0], part)
        return Start(
            batch,
            Rollout(proximal_BT, values_BT, num_updates=self._num_updates),
            proximal,
            reference,
            self._policy_weights(),
        )

    def _policy_weights(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.networks.policy_parameters()]

    @torch.no_grad()
    def _keep_near(self, start: Start, must_stop: Callable[[], bool]) -> Metrics:
        """Take back as much of the update as goes beyond the trust region over the whole batch, all of it where it
        cannot be told: the line search of TRPO (Schulman et al. 2015, appendix C). The distance grows as the square of
        the step."""
        limit, share = self._options.program_kl_limit, 1.0
        distance = self._distance(start, must_stop)
        while not distance <= limit and share > SMALLEST_SHARE:
            kept = 0.9 * min(1.0, math.sqrt(limit / distance)) if math.isfinite(distance) else 0.0
            share *= kept
            self._go_back(start.weights, kept)
            distance = self._distance(start, must_stop)
        if not distance <= limit:
            self._go_back(start.weights, 0.0)
            share, distance = 0.0, 0.0
        if share < 1:
            log.info("%.0f %% of the update is kept: it went beyond %.3g nats a program", 100 * share, limit)
        return {"program_kl": distance, "kept_share": share}

    def _go_back(self, before: Sequence[Tensor], share: float) -> None:
        """Keep a share of the way from `before`; with share 0 also from weights that are not finite."""
        for parameter, start in zip(self.networks.policy_parameters(), before, strict=True):
            parameter.copy_(start + share * (parameter - start) if share else start)

    def _distance(self, start: Start, must_stop: Callable[[], bool]) -> float:
        """KL(proximal || current) of whole programs, in nats a program: the sum over a program's tokens of their exact
        divergences, along programs that the proximal policy wrote, or nearly."""
        total = 0.0
        for rows in self._micro_batches(start.batch, self._ranks.part(range(len(start.batch)))):
            _stop_if(must_stop)
            part = start.batch.rows(rows)
            with precision(self._device):
                words_NV = self.networks.distributions(
                    self.networks.hidden_states(part.prompts, part.text), part.text, part.temperature_B
                )
                total += float(divergences(start.proximal.distributions(rows, part), words_NV).sum())
        return self._ranks.total({"distance": total})["distance"] / len(start.batch)

    def _minibatches(self, num_records: int) -> Iterator[list[int]]:
        size = self._options.minibatch_records
        for _ in range(self._options.epochs):
            order = torch.randperm(num_records, generator=self._random).tolist()
            # A short rest would be a step on very few records: they join the minibatch before.
            count = max(1, round(num_records / size))
            yield from (order[number::count] for number in range(count))

    def _micro_batches(self, batch: SampleBatch, rows: Sequence[int]) -> Iterator[list[int]]:
        """Rows of similar length together, as many as `micro_batch_tokens` allows, prompt and padding included."""
        lengths = (batch.lengths_B + _num_prompt_tokens(batch)).tolist()
        taken: list[int] = []
        for row in sorted(rows, key=lambda row: -lengths[row]):
            if taken and lengths[taken[0]] * (len(taken) + 1) > self._options.micro_batch_tokens:
                yield taken
                taken = []
            taken.append(row)
        if taken:
            yield taken

    def _accumulate(
        self,
        start: Start,
        targets: Targets,
        minibatch: Sequence[int],
        must_stop: Callable[[], bool],
        *,
        policy_moves: bool,
    ) -> Metrics:
        """Gradients of a minibatch, micro-batch by micro-batch; its losses as means over its tokens, its `program_kl`
        and `program_kl_reference` over its programs. Where the policy does not move the critic alone is given
        gradients."""
        batch = start.batch
        num_tokens = int(batch.text.sampled_mask_BT[list(minibatch)].sum())
        names = [field.name for field in fields(Losses)] + ["program_kl", "program_kl_reference"]
        means: Metrics = dict.fromkeys(names, 0.0)
        for rows in self._micro_batches(batch, self._ranks.part(minibatch)):
            _stop_if(must_stop)
            part = batch.rows(rows)
            length = part.behaviour_BT.shape[1]
            of_tokens = float(part.text.sampled_mask_BT.sum()) / num_tokens
            of_programs = len(rows) / len(minibatch)
            of_total = of_programs if self._algorithm.averages_over == "programs" else of_tokens
            before = _rows_of(start.rollout, rows, length)
            current, moved_BT = self._current(start, rows, part, policy_moves)
            losses = self._algorithm.losses(current, before, _rows_of(targets, rows, length), _mask(part))
            if losses.total.requires_grad:
                (losses.total * of_total).backward()  # type: ignore[no-untyped-call]
            for name, loss in vars(losses).items():
                means[name] += float(loss.detach()) * (of_total if name == "total" else of_tokens)
            for name, kl_BT in (("program_kl", moved_BT), ("program_kl_reference", current.kl_reference_BT.detach())):
                means[name] += float(program_mean(kl_BT, _mask(part))) * of_programs
        self._ranks.add_up(self.networks.trained_parameters())
        return self._ranks.total(means)

    def _imitate(self, examples: SampleBatch, must_stop: Callable[[], bool]) -> float:
        """Mixes the gradient of the examples' likelihood into that of the objective; nats an example's token."""
        parameters = self.networks.policy_parameters()
        rewarded = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        num_tokens, nats = int(examples.text.sampled_mask_BT.sum()), 0.0
        for rows in self._micro_batches(examples, range(len(examples))):
            _stop_if(must_stop)
            _, logprobs_BT, _ = self._forward(self.networks, examples.rows(rows))
            loss = -logprobs_BT.sum() / num_tokens
            loss.backward()  # type: ignore[no-untyped-call]
            nats += float(loss.detach())
        imitated = [parameter.grad for parameter in parameters]
        share = self._options.imitation_share
        for parameter, gradient in zip(parameters, mixed(rewarded, imitated, share), strict=True):
            parameter.grad = gradient
        return nats

    def _current(
        self, start: Start, rows: Sequence[int], part: TrainingBatch, policy_moves: bool
    ) -> tuple[Forward, Tensor]:
        """What is said now, with gradients, of the policy where it moves, the critic's end at the hidden states; and
        KL(proximal || current) of each token, without, [B, T]."""
        with torch.set_grad_enabled(policy_moves), precision(self._device):
            hidden = self.networks.hidden_states(part.prompts, part.text)
            words_NV = self.networks.distributions(hidden, part.text, part.temperature_B)
            reference_NV = start.reference.distributions(rows, part)
            forward = Forward(
                logprobs_BT=placed(chosen_logprobs(words_NV, part.text), part.text),
                entropy_BT=placed(entropies(words_NV), part.text),
                kl_reference_BT=placed(divergences(words_NV, reference_NV), part.text),
                values_BT=torch.zeros_like(part.behaviour_BT),
            )
            moved_N = divergences(start.proximal.distributions(rows, part), words_NV.detach())
        return replace(forward, values_BT=self._values(hidden.detach(), part)), placed(moved_N, part.text)

    def _values(self, hidden_BTH: Tensor, part: TrainingBatch) -> Tensor:
        """The critic's, [B, T]; zeros without one."""
        critic = self.networks.value_head
        if critic is None:
            return hidden_BTH.new_zeros(hidden_BTH.shape[:2], dtype=torch.float32)
        is_small = isinstance(critic, StateCritic)  # And best in float32.
        with nullcontext() if is_small else precision(self._device):
            return self.networks.values(hidden_BTH, part.prompts, part.text, part.library_us_B)

    def _forward(self, networks: TrainedPolicy, batch: SampleBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Final hidden states [B, T, H], log-probabilities and entropies [B, T]. The critic stays in float32."""
        with precision(self._device):
            hidden = networks.hidden_states(batch.prompts, batch.text)
            return hidden, *networks.logprobs(hidden, batch.text, batch.temperature_B)

    def _step(self, policy_step_size: float) -> float | None:
        """One step of both optimizers, of the critic's alone where the policy's size is 0; the policy's gradient norm,
        None where gradients were not finite and dropped."""
        if not all(_all_finite(parameter) for parameter in self.networks.trained_parameters()):
            log.warning("gradients are not finite: the step is left out")
            self.networks.zero_grad(set_to_none=True)
            return None
        if self._value_optimizer is not None:
            self._value_optimizer.step(1.0, self._options.max_grad_norm)
        if policy_step_size == 0:
            return 0.0
        return self._policy_optimizer.step(policy_step_size, self._options.max_grad_norm)


class _Gaps:
    """Differences of log-probabilities, of telling tokens and of whole programs."""

    def __init__(self) -> None:
        self._of_tokens: list[float] = []
        self._of_programs: list[float] = []

    def add(self, difference_BT: Tensor, entropy_BT: Tensor) -> None:
        self._of_tokens += difference_BT[entropy_BT > TELLING_ENTROPY].abs().tolist()
        self._of_programs += difference_BT.sum(dim=1).abs().tolist()

    def gap(self) -> Gap:
        return Gap(_mean(self._of_tokens), _mean(self._of_programs), len(self._of_tokens))


class _Progress:
    """Tells of long updates in the log."""

    def __init__(self) -> None:
        self._started = self._told_at = time.monotonic()

    def tell(self, done: int, planned: int, losses: Metrics) -> None:
        now = time.monotonic()
        if now - self._told_at < PROGRESS_S:
            return
        self._told_at = now
        log.info(
            "minibatch %d of at most %d after %.0f s: loss %.4f, %.3g nats a program from where it began",
            done, planned, now - self._started, losses["total"], losses["program_kl"],
        )  # fmt: skip


class _Tally:
    """Losses and steps of an update."""

    def __init__(self) -> None:
        self.stopped_early = False
        self._losses: list[Metrics] = []
        self._norms: list[float] = []

    def add(self, losses: Metrics, norm: float | None) -> None:
        self._losses.append(losses)
        if norm is not None:
            self._norms.append(norm)

    def metrics(self) -> Metrics:
        """Means over the steps."""
        means = {
            name: _mean([each[name] for each in self._losses])
            for name in ("policy", "value", "kl_reference", "program_kl_reference", "clip_fraction", "entropy")
        }
        imitated = [each["imitation"] for each in self._losses if "imitation" in each]
        return {
            **({"imitation": _mean(imitated)} if imitated else {}),
            "policy_loss": means["policy"],
            "value_loss": means["value"],
            "kl_reference": means["kl_reference"],
            "program_kl_reference": means["program_kl_reference"],
            "clip_fraction": means["clip_fraction"],
            "entropy": means["entropy"],
            "grad_norm": _mean(self._norms),
            "steps": float(len(self._norms)),
            "skipped_steps": float(len(self._losses) - len(self._norms)),
            "stopped_early": float(self.stopped_early),
        }


def _batch_metrics(batch: TrainingBatch, rollout: Rollout, targets: Targets) -> Metrics:
    """What the batch says of itself, before the update."""
    mask_BT = _mask(batch)
    weights = targets.weights_BT[batch.text.sampled_mask_BT]
    return {
        "records": float(len(batch)),
        "tokens": float(mask_BT.sum()),
        "mean_reward": float(batch.reward_B.mean()),
        "reward_std": float(batch.reward_B.std(unbiased=False)),
        "pass_share": float(batch.passed_B.float().mean()),
        "mean_staleness": float(batch.staleness_B.mean()),
        "oldest_used": float(batch.staleness_B.max()),
        "importance_mean": float(weights.mean()),
        "importance_max": float(weights.max()),
        "explained_variance": float(explained_variance(rollout.values_BT, targets.returns_BT, mask_BT)),
    }


def _rows_of(known: Tensors, rows: Sequence[int], length: int) -> Tensors:
    parts: dict[str, Any] = {
        name: value[list(rows), :length] for name, value in vars(known).items() if isinstance(value, Tensor)
    }
    return replace(known, **parts)


def _num_prompt_tokens(batch: SampleBatch) -> int:
    """Matrix tokens; the handful of header and feature tokens is left out. A prompt in words is part of the text."""
    return 0 if batch.prompts is None else batch.prompts.points.shape[1]


def _mask(batch: TrainingBatch) -> Tensor:
    return batch.text.sampled_mask_BT.float()


def _all_finite(parameter: nn.Parameter) -> bool:
    return parameter.grad is None or bool(parameter.grad.isfinite().all())


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _stop_if(must_stop: Callable[[], bool]) -> None:
    if must_stop():
        raise Stopped
