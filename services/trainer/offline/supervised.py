"""Stage two: encoder and language model learn to write the programs that were measured fastest for each workload."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from services.trainer.offline.pretraining import Clock
from services.trainer.offline.prompt_pool import Noise, PromptPool, header_tensor
from services.trainer.offline.targets import WorkloadTargets
from services.trainer.optimizers import Optimizer, Schedule
from services.trainer.policy_model import PolicyNetworks, text_batch
from services.trainer.precision import precision
from services.trainer.tokenizer import BOS_ID, encode_program
from sparsesmith.policy.embedding import refinement_token_ids
from sparsesmith.prompts.refinement import timing_report


@dataclass(frozen=True)
class SupervisedSettings:
    """How long and how fast."""

    seconds: float = 180.0
    """Wall time of the training loop."""
    max_epochs: float = 400.0
    """An epoch shows one target of each workload."""
    batch_sequences: int = 64
    max_program_tokens: int = 768
    """Longer targets are left out."""
    refinement_share: float = 0.15
    """Examples that show a slower program and its report first."""
    matrix_rate: float = 1e-3
    other_rate: float = 1e-3
    weight_decay: float = 0.1
    checks: int = 12
    """Times that the held-out loss is measured; the weights of the best one are kept."""
    architecture: str = "sm_90"
    """GPU on which the programs were measured."""
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class SupervisedReport:
    """What a run did. Losses are nats a token, each workload's targets weighted as in training."""

    steps: int
    epochs: float
    seconds: float
    train_workloads: int
    validation_workloads: int
    train_loss: float
    validation_loss: float
    """Of the weights that were kept."""
    validation_losses: list[float] = field(default_factory=list)
    """Of each check, in order."""


@dataclass(frozen=True)
class Example:
    """One target of one workload, tokenised."""

    pattern: str
    header: Tensor
    prompt_ids: list[int]
    """Text before the program: `<bos>`, after a parent and its report when refining."""
    program_ids: list[int]
    weight: float


class Examples:
    """Tokenised targets of workloads, drawn by weight; some ask to refine a slower program of the same workload."""

    def __init__(
        self, workloads: Sequence[WorkloadTargets], tokenizer: Tokenizer, settings: SupervisedSettings
    ) -> None:
        self._tokenizer = tokenizer
        self._settings = settings
        self.groups: list[list[Example]] = []
        """Targets of each workload that has any short enough."""
        self._workloads: list[WorkloadTargets] = []
        for workload in workloads:
            group = self._tokenised(workload)
            if group:
                self.groups.append(group)
                self._workloads.append(workload)

    def __len__(self) -> int:
        return len(self.groups)

    def epochs(self, batch_sequences: int, generator: np.random.Generator) -> Iterator[list[Example]]:
        """Batches without end; each epoch shows each workload once, with a target drawn by weight."""
        while True:
            order = generator.permutation(len(self.groups))
            for start in range(0, len(order), batch_sequences):
                yield [self._drawn(int(index), generator) for index in order[start : start + batch_sequences]]

    def _drawn(self, index: int, generator: np.random.Generator) -> Example:
        group = self.groups[index]
        example = group[_draw([each.weight for each in group], generator)]
        if generator.random() >= self._settings.refinement_share:
            return example
        return self._refining(example, self._workloads[index], generator)

    def _refining(self, example: Example, workload: WorkloadTargets, generator: np.random.Generator) -> Example:
        """The same target, asked for as an improvement on a slower program; unchanged where none was measured."""
        slowest_target_us = workload.measured[len(workload.targets) - 1].median_us
        slower = [each for each in workload.measured if each.median_us > slowest_target_us]
        if not slower or workload.best_baseline_us is None:
            return example
        parent = slower[int(generator.integers(len(slower)))]
        report = timing_report(parent.median_us, workload.best_baseline_us)
        ids = refinement_token_ids(self._tokenizer, parent.program, report)
        return replace(example, prompt_ids=[*ids, BOS_ID])

    def _tokenised(self, workload: WorkloadTargets) -> list[Example]:
        key = workload.key
        header = header_tensor(key.operation, key.element_type, key.num_dense_cols, self._settings.architecture)
        group = [
            Example(key.pattern, header, [BOS_ID], encode_program(self._tokenizer, target.program), target.weight)
            for target in workload.targets
        ]
        return [each for each in group if len(each.program_ids) <= self._settings.max_program_tokens]


def train_supervised(
    networks: PolicyNetworks,
    pool: PromptPool,
    train: Examples,
    validation: Examples,
    settings: SupervisedSettings,
    log: Callable[[str], None] = print,
) -> SupervisedReport:
    """Trains in place until the time or the epochs are used up and leaves the weights with the least held-out loss."""
    torch.manual_seed(settings.seed)
    generator = np.random.default_rng(settings.seed)
    networks.to(settings.device).train()
    optimizer = Optimizer(
        [networks], matrix_rate=settings.matrix_rate, other_rate=settings.other_rate, decay=settings.weight_decay
    )
    schedule, clock = Schedule(warmup=0.05, decay=0.6), Clock(settings.seconds)
    best = Best(networks)
    losses: list[Tensor] = []
    steps, seen = 0, 0
    for batch in train.epochs(settings.batch_sequences, generator):
        progress = max(clock.progress(), seen / (settings.max_epochs * len(train)))
        if progress >= 1.0:
            break
        if progress * settings.checks >= len(best.losses) + 1:
            best.offer(held_out_loss(networks, pool, validation, settings))
            recent = float(torch.stack(losses[-50:]).mean())
            log(f"step {steps} {clock.elapsed_s():.0f} s epoch {seen / len(train):.1f} loss {recent:.4f} "
                f"held out {best.losses[-1]:.4f}")  # fmt: skip
        losses.append(_step(networks, pool, batch, generator, settings))
        optimizer.step(schedule.factor(progress))
        steps, seen = steps + 1, seen + len(batch)
    best.offer(held_out_loss(networks, pool, validation, settings))
    best.restore()
    return SupervisedReport(
        steps=steps,
        epochs=seen / len(train),
        seconds=clock.elapsed_s(),
        train_workloads=len(train),
        validation_workloads=len(validation),
        train_loss=float(torch.stack(losses[-50:]).mean()) if losses else math.nan,
        validation_loss=min(best.losses),
        validation_losses=best.losses,
    )


class Best:
    """The weights with the least held-out loss so far."""

    def __init__(self, networks: PolicyNetworks) -> None:
        self._networks = networks
        self._weights: dict[str, Tensor] | None = None
        self.losses: list[float] = []

    def offer(self, loss: float) -> None:
        """Remembers the networks as they are if this loss is the least."""
        if not self.losses or loss <= min(self.losses):
            self._weights = copy.deepcopy(self._networks.state_dict())
        self.losses.append(loss)

    def restore(self) -> None:
        """Puts the remembered weights back."""
        if self._weights is not None:
            self._networks.load_state_dict(self._weights)


@torch.no_grad()
def held_out_loss(
    networks: PolicyNetworks, pool: PromptPool, examples: Examples, settings: SupervisedSettings
) -> float:
    """Mean loss over all targets of all workloads, weighted; always on the same prompt samples. Nats a token."""
    networks.eval()
    generator = np.random.default_rng(0)
    flat = [example for group in examples.groups for example in group]
    total = weights = 0.0
    for start in range(0, len(flat), settings.batch_sequences):
        batch = flat[start : start + settings.batch_sequences]
        per_sequence = _sequence_losses(networks, pool, batch, generator, settings, None)
        weight = torch.tensor([example.weight for example in batch], device=per_sequence.device)
        total += float((per_sequence * weight).sum())
        weights += float(weight.sum())
    networks.train()
    return total / max(weights, 1e-9)


def _step(
    networks: PolicyNetworks,
    pool: PromptPool,
    batch: Sequence[Example],
    generator: np.random.Generator,
    settings: SupervisedSettings,
) -> Tensor:
    """Forward and backward; the mean loss, detached."""
    loss = _sequence_losses(networks, pool, batch, generator, settings, Noise()).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def _sequence_losses(
    networks: PolicyNetworks,
    pool: PromptPool,
    batch: Sequence[Example],
    generator: np.random.Generator,
    settings: SupervisedSettings,
    noise: Noise | None,
) -> Tensor:
    """Mean negative log-probability of each program's tokens, shape [B]."""
    prompts = pool.batch([each.pattern for each in batch], [each.header for each in batch], generator, noise)
    text = text_batch([each.prompt_ids for each in batch], [each.program_ids for each in batch]).to(settings.device)
    with precision(settings.device):
        hidden = networks.hidden_states(prompts, text)
        logprobs_BT, _ = networks.logprobs(hidden, text)
    return -logprobs_BT.sum(dim=1) / text.sampled_mask_BT.sum(dim=1)


def _draw(weights: Sequence[float], generator: np.random.Generator) -> int:
    return int(generator.choice(len(weights), p=np.array(weights) / sum(weights)))
