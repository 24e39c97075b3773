"""Stage two: encoder and language model learn to write fast programs, to improve and to repair others."""

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from services.trainer.offline.examples import KINDS, Example, Examples
from services.trainer.offline.parts import PARTS
from services.trainer.offline.pretraining import Clock
from services.trainer.offline.prompt_pool import Noise, PromptPool
from services.trainer.offline.saved_run import NO_SAVED_RUN, SavedRun, State
from services.trainer.optimizers import Optimizer, Schedule
from services.trainer.policy_model import PolicyNetworks, text_batch
from services.trainer.precision import precision


@dataclass(frozen=True)
class SupervisedSettings:
    """How long and how fast."""

    seconds: float = 180.0
    """Wall time of the training loop."""
    max_epochs: float = 400.0
    """An epoch shows one example of each workload."""
    batch_sequences: int = 64
    matrix_rate: float = 1e-3
    other_rate: float = 1e-3
    weight_decay: float = 0.1
    checks: int = 12
    """Times that the held-out loss is measured; the weights of the best one are kept."""
    device: str = "cpu"
    seed: int = 0
    piece_sequences: int = 0
    """Texts of a batch that are computed at once, those of about the same length: on a CPU the padding of short ones to
    long ones is most of the work. 0: all of them."""
    bfloat16: bool = False
    """Arithmetic on a CPU: twice as fast where it multiplies such numbers in tiles (AMX). A GPU does so always."""


Nats = Mapping[str, Mapping[str, float]]
"""Kind of example -> nats a program by part, `program` for all of it, `tokens` and how many `examples`."""


@dataclass(frozen=True)
class SupervisedReport:
    """What a run did."""

    steps: int
    epochs: float
    seconds: float
    train_workloads: int
    validation_workloads: int
    train_loss: float
    """Of the last steps, nats a token."""
    validation_loss: float
    """Of the weights that were kept: nats a token, the mean of the kinds of examples."""
    validation_losses: list[float] = field(default_factory=list)
    """Of each check, in order."""
    nats: Nats = field(default_factory=dict)
    """On validation, of the weights that were kept."""


def train_supervised(
    networks: PolicyNetworks,
    pool: PromptPool,
    train: Examples,
    validation: Examples,
    settings: SupervisedSettings,
    log: Callable[[str], None] = print,
    saved: SavedRun = NO_SAVED_RUN,
) -> SupervisedReport:
    """Trains in place until the time or the epochs are used up and leaves the weights with the least held-out loss."""
    networks.to(settings.device).train()
    optimizer = Optimizer(
        [networks],
        matrix_rate=settings.matrix_rate,
        other_rate=settings.other_rate,
        decay=settings.weight_decay,
        bfloat16=settings.bfloat16,
    )
    run = _Run(networks, optimizer, Best(networks), settings)
    if (state := saved.state()) is not None:
        run.go_on_from(state)
        log(f"goes on at step {run.step}")
    schedule, held_out = Schedule(warmup=0.05, decay=0.6), list(validation.fixed())
    while (progress := run.progress(len(train))) < 1.0:
        if progress * settings.checks >= len(run.best.losses) + 1:
            run.best.offer(mean_of_kinds(held_out_nats(networks, pool, held_out, settings)))
            log(f"step {run.step} {run.clock.elapsed_s():.0f} s epoch {run.seen / len(train):.1f} "
                f"loss {run.recent_loss():.4f} held out {run.best.losses[-1]:.4f}")  # fmt: skip
        batch = train.batch(run.step, settings.batch_sequences)
        run.losses.append(_step(networks, pool, batch, run.step, settings))
        optimizer.step(schedule.factor(progress))
        run.step, run.seen = run.step + 1, run.seen + len(batch)
        saved.offer(run.state)
    run.best.offer(mean_of_kinds(held_out_nats(networks, pool, held_out, settings)))
    run.best.restore()
    return SupervisedReport(
        steps=run.step,
        epochs=run.seen / len(train),
        seconds=run.clock.elapsed_s(),
        train_workloads=len(train),
        validation_workloads=len(validation),
        train_loss=run.recent_loss(),
        validation_loss=min(run.best.losses),
        validation_losses=run.best.losses,
        nats=held_out_nats(networks, pool, held_out, settings),
    )


class _Run:
    """Where a run stands."""

    def __init__(
        self, networks: PolicyNetworks, optimizer: Optimizer, best: "Best", settings: SupervisedSettings
    ) -> None:
        self._networks = networks
        self._optimizer = optimizer
        self._settings = settings
        self.best = best
        self.clock = Clock(settings.seconds)
        self.step = self.seen = 0
        self.losses: list[Tensor] = []

    def progress(self, epoch: int) -> float:
        """Share of the time or of the epochs that is gone, whichever is more."""
        return max(self.clock.progress(), self.seen / (self._settings.max_epochs * epoch))

    def recent_loss(self) -> float:
        return float(torch.stack(self.losses[-50:]).mean()) if self.losses else math.nan

    def state(self) -> State:
        return {
            "networks": self._networks.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "best": self.best.state(),
            "step": self.step,
            "seen": self.seen,
            "seconds": self.clock.elapsed_s(),
            "losses": self.losses[-50:],
        }

    def go_on_from(self, state: State) -> None:
        self._networks.load_state_dict(state["networks"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.best.go_on_from(state["best"])
        self.step, self.seen = state["step"], state["seen"]
        self.losses = [each.to(self._settings.device) for each in state["losses"]]
        self.clock = Clock(self._settings.seconds, spent_s=state["seconds"])


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

    def state(self) -> State:
        return {"weights": self._weights, "losses": self.losses}

    def go_on_from(self, state: State) -> None:
        self._weights, self.losses = state["weights"], list(state["losses"])


@torch.no_grad()
def held_out_nats(
    networks: PolicyNetworks, pool: PromptPool, examples: Sequence[Example], settings: SupervisedSettings
) -> Nats:
    """Of each kind, weighted; always on the same prompt samples."""
    networks.eval()
    generator = np.random.default_rng(0)
    totals: dict[str, dict[str, float]] = {kind: defaultdict(float) for kind in KINDS}
    for batch in pieces(examples, settings.piece_sequences or settings.batch_sequences):
        nats_BT = _token_losses(networks, pool, batch, generator, settings, None)[0].cpu()
        for example, nats in zip(batch, nats_BT, strict=True):
            total, of_program = totals[example.kind], nats[len(example.prompt_ids) :]
            parts = torch.tensor(example.program.parts)
            for number, part in enumerate(PARTS):
                total[part] += example.weight * float(of_program[: len(parts)][parts == number].sum())
            total["tokens"] += example.weight * len(parts)
            total["weight"] += example.weight
            total["examples"] += 1
    networks.train()
    return {kind: _means(total) for kind, total in totals.items() if total["examples"] > 0}


def mean_of_kinds(nats: Nats) -> float:
    """Nats a token, of each kind of example alike."""
    return sum(each["program"] / each["tokens"] for each in nats.values()) / max(len(nats), 1)


def _means(total: Mapping[str, float]) -> dict[str, float]:
    parts: dict[str, float] = {part: total[part] / total["weight"] for part in PARTS}
    return {
        **parts,
        "program": sum(parts.values()),
        "tokens": total["tokens"] / total["weight"],
        "examples": total["examples"],
    }


def _step(
    networks: PolicyNetworks, pool: PromptPool, batch: Sequence[Example], step: int, settings: SupervisedSettings
) -> Tensor:
    """Forward and backward; the mean loss, detached. Chance is of the run's seed and the step alone."""
    torch.manual_seed(settings.seed * 1_000_003 + step)
    return backward(networks, pool, batch, np.random.default_rng((settings.seed, step, 1)), settings, Noise())


def backward(
    networks: PolicyNetworks,
    pool: PromptPool,
    batch: Sequence[Example],
    generator: np.random.Generator,
    settings: SupervisedSettings,
    noise: Noise,
) -> Tensor:
    """Adds the gradient of the mean loss to the networks' own; the loss, detached."""
    total = torch.zeros((), device=settings.device)
    for piece in pieces(batch, settings.piece_sequences or len(batch)):
        nats_BT, mask_BT = _token_losses(networks, pool, piece, generator, settings, noise)
        loss = (nats_BT.sum(dim=1) / mask_BT.sum(dim=1)).sum() / len(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total


def pieces(examples: Sequence[Example], size: int) -> Iterator[list[Example]]:
    """So many at once; in their order where all are one piece, else the shortest first."""
    ordered = examples if size >= len(examples) else sorted(examples, key=_length)
    for start in range(0, len(ordered), size):
        yield list(ordered[start : start + size])


def _length(example: Example) -> int:
    return len(example.prompt_ids) + len(example.program.ids)


def _token_losses(
    networks: PolicyNetworks,
    pool: PromptPool,
    batch: Sequence[Example],
    generator: np.random.Generator,
    settings: SupervisedSettings,
    noise: Noise | None,
) -> tuple[Tensor, Tensor]:
    """Negative log-probability of each program token, 0 elsewhere, and where they are: shape [B, T] each."""
    prompts = pool.batch([each.pattern for each in batch], [each.asked for each in batch], generator, noise)
    text = text_batch([each.prompt_ids for each in batch], [each.program.ids for each in batch]).to(settings.device)
    with precision(settings.device, is_short=settings.bfloat16):
        hidden = networks.hidden_states(prompts, text)
        logprobs_BT, _ = networks.logprobs(hidden, text)
    return -logprobs_BT, text.sampled_mask_BT
