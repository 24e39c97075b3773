"""Trains a value model on everything that was measured: of two programs for one workload, which is the faster?

A batch holds several programs of each of several workloads. What is learned is the time against the others of the
workload; how long a workload takes at all counts little, since nobody chooses that. Failures teach the chance to pass.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from tokenizers import Tokenizer
from torch import Tensor

from services.trainer.offline.pretraining import Clock
from services.trainer.offline.prompt_pool import Asked, Device, Noise, PromptPool, asked_for
from services.trainer.offline.saved_run import NO_SAVED_RUN, SavedRun, State
from services.trainer.offline.sides import Side
from services.trainer.offline.targets import WorkloadTargets
from services.trainer.optimizers import Optimizer, Schedule
from services.trainer.precision import precision
from services.trainer.tokenizer import BOS_ID, encode_program
from sparsesmith.policy.value import ValueModel, padded

FloatArray = npt.NDArray[np.float64]

REJECTED = "rejected"
"""Reports that begin so teach nothing: the contract itself says which texts are legal."""
LEAST_PROGRAMS = 8
"""Of a workload, for a rank correlation."""
MOST_CHECKED = 64
"""Programs of a workload that a check looks at, evenly chosen by time."""
MOST_RANKED = 512
"""At the end."""


@dataclass(frozen=True)
class ValueSettings:
    """How long and how fast."""

    seconds: float = 240.0
    """Wall time of the training loop."""
    max_passes: float = 400.0
    """A pass shows `programs` of each workload."""
    workloads: int = 16
    """Of a batch."""
    programs: int = 8
    """Of each workload of a batch."""
    failure_share: float = 0.25
    """Of a workload's programs in a batch, where failures of it are known."""
    absolute_share: float = 0.05
    """Weight of the time itself beside that of the time against the others."""
    max_program_tokens: int = 1024
    """Longer programs are left out."""
    matrix_rate: float = 2e-3
    other_rate: float = 1e-3
    weight_decay: float = 0.1
    checks: int = 8
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class Ranking:
    """How well programs of one workload are put in order, as means over workloads."""

    workloads: int
    programs: int
    spearman: float
    """Rank correlation within a workload."""
    spearman_fast: float
    """Among the programs within 1.5x of the fastest: where a search happens."""
    quarter: float
    """The fastest of all over the fastest of the best-ranked quarter: 1 where a filter loses nothing."""
    quarter_by_chance: float
    """The same of a random quarter."""


@dataclass(frozen=True)
class ValueReport:
    """What a run did."""

    steps: int
    passes: float
    seconds: float
    train_workloads: int
    programs: int
    """Different ones of the train side, over workloads."""
    failures: int
    train_loss: float
    validation: Ranking
    checks: list[float] = field(default_factory=list)
    """Rank correlation on validation at each check, in order."""


@dataclass(frozen=True)
class Judged:
    """A workload with what was measured of it."""

    pattern: str
    asked: Asked
    programs: tuple[str, ...]
    log_times: FloatArray
    failed: tuple[str, ...]


def judged(workload: WorkloadTargets, device: Device) -> Judged:
    """Times, and failures that only a device could tell."""
    key = workload.key
    return Judged(
        key.pattern,
        asked_for(key.operation, key.element_type, key.num_dense_cols, device),
        tuple(each.program for each in workload.measured),
        np.log([each.median_us for each in workload.measured]),
        tuple(each.failed for each in workload.repairs if not each.report.startswith(REJECTED)),
    )


class Programs:
    """Token ids of texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.ids = lru_cache(maxsize=100_000)(lambda text: [BOS_ID, *encode_program(tokenizer, text)])

    def within(self, workload: Judged, most: int) -> Judged:
        """Without the programs of more tokens."""
        short = [number for number, text in enumerate(workload.programs) if len(self.ids(text)) <= most + 1]
        return Judged(
            workload.pattern,
            workload.asked,
            tuple(workload.programs[number] for number in short),
            workload.log_times[short],
            tuple(text for text in workload.failed if len(self.ids(text)) <= most + 1),
        )


def train_value_model(
    model: ValueModel,
    pool: PromptPool,
    sides: Mapping[Side, Sequence[Judged]],
    programs: Programs,
    settings: ValueSettings,
    log: Callable[[str], None] = print,
    saved: SavedRun = NO_SAVED_RUN,
) -> ValueReport:
    """Trains in place until the time or the passes are used up."""
    train = [each for each in sides["train"] if len(each.programs) >= 2]
    model.to(settings.device).train()
    optimizer = Optimizer(
        [model], matrix_rate=settings.matrix_rate, other_rate=settings.other_rate, decay=settings.weight_decay
    )
    schedule, clock = Schedule(warmup=0.05, decay=0.7), Clock(settings.seconds)
    step, losses, checks = 0, list[Tensor](), list[float]()
    if (state := saved.state()) is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, checks, clock = state["step"], list(state["checks"]), Clock(settings.seconds, spent_s=state["seconds"])
        log(f"goes on at step {step}")

    def state_now() -> State:
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        return {**kept, "checks": checks, "seconds": clock.elapsed_s()}

    steps_a_pass = math.ceil(len(train) / settings.workloads)
    while (progress := max(clock.progress(), step / (settings.max_passes * steps_a_pass))) < 1.0:
        if progress * settings.checks >= len(checks) + 1:
            checks.append(ranking(model, pool, sides["validation"], programs, settings, MOST_CHECKED).spearman)
            recent = float(torch.stack(losses[-50:]).mean()) if losses else math.nan
            log(f"step {step} {clock.elapsed_s():.0f} s loss {recent:.4f} rank correlation {checks[-1]:.3f}")
        losses.append(_step(model, pool, _batch(train, step, settings), programs, step, settings))
        optimizer.step(schedule.factor(progress))
        step += 1
        saved.offer(state_now)
    return ValueReport(
        steps=step,
        passes=step / steps_a_pass,
        seconds=clock.elapsed_s(),
        train_workloads=len(train),
        programs=sum(len(each.programs) for each in train),
        failures=sum(len(each.failed) for each in train),
        train_loss=float(torch.stack(losses[-50:]).mean()) if losses else math.nan,
        validation=ranking(model, pool, sides["validation"], programs, settings, MOST_RANKED),
        checks=checks,
    )


@torch.no_grad()
def log_times(
    model: ValueModel, pool: PromptPool, workload: Judged, programs: Programs, settings: ValueSettings
) -> FloatArray:
    """Expected, of each program; always on the same prompt sample. Programs of like length share a batch."""
    model.eval()
    order = sorted(range(len(workload.programs)), key=lambda each: len(programs.ids(workload.programs[each])))
    expected = np.zeros(len(order))
    size = settings.workloads * settings.programs
    for start in range(0, len(order), size):
        part = order[start : start + size]
        prompts = pool.batch([workload.pattern] * len(part), [workload.asked] * len(part), np.random.default_rng(0))
        ids, lengths = padded([programs.ids(workload.programs[each]) for each in part])
        with precision(settings.device):
            _, times = model(prompts, ids.to(settings.device), lengths.to(settings.device))
        expected[part] = times.cpu().double().numpy()
    model.train()
    return expected


def ranking(
    model: ValueModel,
    pool: PromptPool,
    workloads: Sequence[Judged],
    programs: Programs,
    settings: ValueSettings,
    most: int,
) -> Ranking:
    """Over workloads with enough programs; of each at most `most`, evenly chosen."""
    enough = [thinned(each, most) for each in workloads if len(each.programs) >= LEAST_PROGRAMS]
    expected = [log_times(model, pool, each, programs, settings) for each in enough]
    return ranking_of([(each.log_times, costs) for each, costs in zip(enough, expected, strict=True)])


def ranking_of(pairs: Sequence[tuple[FloatArray, FloatArray]]) -> Ranking:
    """Of measured and expected logarithms of times, a pair a workload."""
    fast = [
        (times, costs) for times, costs in (_near_the_fastest(*pair) for pair in pairs) if len(times) >= LEAST_PROGRAMS
    ]
    generator = np.random.default_rng(0)
    kept = [_lost_by_quarter(times, costs) for times, costs in pairs]
    chance = [np.mean([_lost_by_quarter(times, generator.random(len(times))) for _ in range(20)]) for times, _ in pairs]
    return Ranking(
        workloads=len(pairs),
        programs=sum(len(times) for times, _ in pairs),
        spearman=_mean([_spearman(times, costs) for times, costs in pairs]),
        spearman_fast=_mean([_spearman(times, costs) for times, costs in fast]),
        quarter=math.exp(-_mean(kept)),
        quarter_by_chance=math.exp(-_mean([float(each) for each in chance])),
    )


def _near_the_fastest(times: FloatArray, costs: FloatArray) -> tuple[FloatArray, FloatArray]:
    near = times <= times.min() + math.log(1.5)
    return times[near], costs[near]


def _lost_by_quarter(times: FloatArray, costs: FloatArray) -> float:
    """Logarithm of the fastest of the best-ranked quarter over the fastest of all."""
    kept = np.argsort(costs, kind="stable")[: max(1, len(times) // 4)]
    return float(times[kept].min() - times.min())


def _spearman(times: FloatArray, costs: FloatArray) -> float:
    """0 where one side knows no difference."""
    if np.ptp(times) == 0 or np.ptp(costs) == 0:
        return 0.0
    return float(spearmanr(times, costs).statistic)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def thinned(workload: Judged, most: int) -> Judged:
    """At most `most` of its programs, evenly chosen by time."""
    step = max(1, -(-len(workload.programs) // most))
    return Judged(
        workload.pattern, workload.asked, workload.programs[::step], workload.log_times[::step], workload.failed
    )


@dataclass(frozen=True)
class _Batch:
    """Programs of several workloads, those of one beside each other."""

    workloads: Sequence[Judged]
    texts: list[str]
    of_workload: list[int]
    log_times: list[float]
    """NaN for a program that failed."""


def _batch(train: Sequence[Judged], step: int, settings: ValueSettings) -> _Batch:
    """The `step`-th of a run; a pass shows each workload once."""
    batches = math.ceil(len(train) / settings.workloads)
    number, place = divmod(step, batches)
    order = np.random.default_rng((settings.seed, 1 << 40, number)).permutation(len(train))
    chosen = [train[int(each)] for each in order[place * settings.workloads : (place + 1) * settings.workloads]]
    generator = np.random.default_rng((settings.seed, step))
    texts, of_workload, times = list[str](), list[int](), list[float]()
    for index, workload in enumerate(chosen):
        num_failed = round(settings.failure_share * settings.programs) if workload.failed else 0
        passed = generator.permutation(len(workload.programs))[: settings.programs - num_failed]
        failed = generator.permutation(len(workload.failed))[:num_failed]
        texts += [workload.programs[int(each)] for each in passed] + [workload.failed[int(each)] for each in failed]
        times += [*workload.log_times[passed].tolist(), *[math.nan] * len(failed)]
        of_workload += [index] * (len(passed) + len(failed))
    return _Batch(chosen, texts, of_workload, times)


def _step(
    model: ValueModel, pool: PromptPool, batch: _Batch, programs: Programs, step: int, settings: ValueSettings
) -> Tensor:
    """Forward and backward; the loss, detached. Chance is of the run's seed and the step alone."""
    torch.manual_seed(settings.seed * 1_000_003 + step)
    workloads = [batch.workloads[index] for index in batch.of_workload]
    generator = np.random.default_rng((settings.seed, step, 1))
    prompts = pool.batch([each.pattern for each in workloads], [each.asked for each in workloads], generator, Noise())
    ids, lengths = padded([programs.ids(text) for text in batch.texts])
    with precision(settings.device):
        passes, expected = model(prompts, ids.to(settings.device), lengths.to(settings.device))
    measured = torch.tensor(batch.log_times, dtype=torch.float32, device=expected.device)
    groups = torch.tensor(batch.of_workload, device=expected.device)
    loss = value_loss(passes, expected, measured, groups, settings.absolute_share)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def value_loss(
    passes_B: Tensor, expected_B: Tensor, measured_B: Tensor, groups_B: Tensor, absolute_share: float
) -> Tensor:
    """Of times against the mean of their workload, of times themselves, and of passing; NaN: a program that failed."""
    passed = ~measured_B.isnan()
    expected, measured, groups = expected_B[passed], measured_B[passed], groups_B[passed]
    count = torch.zeros(int(groups_B.max()) + 1, device=groups.device).index_add_(0, groups, torch.ones_like(expected))

    def against_others(values: Tensor) -> Tensor:
        total = torch.zeros_like(count).index_add_(0, groups, values)
        return values - (total / count.clamp(min=1))[groups]

    loss = F.huber_loss(against_others(expected), against_others(measured))
    loss = loss + absolute_share * F.huber_loss(expected, measured)
    if not bool(passed.all()):
        loss = loss + 0.1 * F.binary_cross_entropy_with_logits(passes_B, passed.float())
    return loss
