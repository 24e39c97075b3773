"""Teaches a critic what measured programs take: a head on the hidden states of a policy that stays as it is.

Of each workload some programs, faster ones more often, as a policy would write them; each is read once, and the states
before its first tokens and some of the later ones are kept. The head is then taught on all of them many times.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from services.trainer.offline.prompt_pool import PromptPool
from services.trainer.offline.value_training import Judged, Programs
from services.trainer.policy_model import CRITIC_TOKEN, PolicyNetworks, text_batch
from services.trainer.precision import precision
from services.trainer.time_critic import TimeHead
from services.trainer.tokenizer import BOS_ID


@dataclass(frozen=True)
class CriticSettings:
    """What is read, and how long it is learned from."""

    programs: int = 8
    """Of each workload."""
    temperature: float = 0.1
    """They are drawn by a softmax of -log(time) / temperature: 10 % slower is drawn 1/e as often."""
    again: bool = False
    """Whether one may be drawn more than once, as a policy writes them."""
    first_tokens: int = 24
    """The states before all of these are kept: there most of a program is decided."""
    every: int = 16
    """Of later ones one in so many."""
    most_tokens: int = 256
    """Longer programs are read so far."""
    batch: int = 16
    """Programs that are read at a time."""
    passes: int = 60
    """Over the states that were kept."""
    states: int = 2048
    """Of a step of the head."""
    rate: float = 1e-3
    weight_decay: float = 0.1
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class States:
    """Of programs of many workloads. N states."""

    hidden_NH: Tensor
    """Float16."""
    log2_us_N: Tensor
    workload_N: Tensor
    """Number of the workload that each is of."""
    token_N: Tensor
    """How many tokens of the program are known after the next one, from 1."""

    def at(self, token: int) -> "States":
        """Those before one token."""
        kept = self.token_N == token
        return States(self.hidden_NH[kept], self.log2_us_N[kept], self.workload_N[kept], self.token_N[kept])


@dataclass(frozen=True)
class CriticReport:
    """What a run did. Explained variance: of log2(time), at the tenth token."""

    train_workloads: int
    validation_workloads: int
    states: int
    loss: float
    train_explained: float
    validation_explained: float
    validation_error: float
    """Root mean square, in doublings of time."""
    checks: list[float] = field(default_factory=list)
    """Of `validation_explained`, as it went."""


def drawn(workload: Judged, settings: CriticSettings, number: int) -> list[int]:
    """Programs of a workload, as a policy that has learned from it would write them."""
    generator = np.random.default_rng((settings.seed, number))
    weights = np.exp((workload.log_times.min() - workload.log_times) / settings.temperature) + 1e-9
    count = settings.programs if settings.again else min(settings.programs, len(workload.programs))
    chosen = generator.choice(len(workload.programs), count, replace=settings.again, p=weights / weights.sum())
    return sorted(chosen.tolist())


@torch.no_grad()
def read_states(
    networks: PolicyNetworks,
    pool: PromptPool,
    workloads: Sequence[Judged],
    programs: Programs,
    settings: CriticSettings,
    log: Callable[[str], None] = print,
) -> States:
    """What the policy makes of the programs that are drawn."""
    networks.to(settings.device).eval()
    chosen = [(number, each) for number, workload in enumerate(workloads) for each in drawn(workload, settings, number)]
    chosen.sort(key=lambda pair: len(programs.ids(workloads[pair[0]].programs[pair[1]])))
    generator, parts = np.random.default_rng(settings.seed), list[States]()
    for start in range(0, len(chosen), settings.batch):
        part = chosen[start : start + settings.batch]
        asked = [workloads[number] for number, _ in part]
        prompts = pool.batch([each.pattern for each in asked], [each.asked for each in asked], generator)
        texts = [programs.ids(workloads[number].programs[each])[1 : settings.most_tokens + 1] for number, each in part]
        text = text_batch([[BOS_ID]] * len(part), texts).to(settings.device)
        with precision(settings.device):
            hidden = networks.hidden_states(prompts, text)
        token_BT = text.sampled_mask_BT.cumsum(dim=1) * text.sampled_mask_BT
        kept = (token_BT > 0) & ((token_BT <= settings.first_tokens) | (token_BT % settings.every == 0))
        rows, _ = kept.nonzero(as_tuple=True)
        times = torch.tensor([float(workloads[number].log_times[each]) / math.log(2) for number, each in part])
        numbers = torch.tensor([number for number, _ in part])
        parts.append(States(hidden[kept].half().cpu(), times[rows.cpu()], numbers[rows.cpu()], token_BT[kept].cpu()))
        if start // settings.batch % 50 == 0:
            log(f"{start} of {len(chosen)} programs are read")
    return States(*(torch.cat([getattr(each, name) for each in parts]) for name in vars(parts[0])))


def teach(
    train: States, validation: States, settings: CriticSettings, log: Callable[[str], None] = print
) -> tuple[TimeHead, CriticReport]:
    """A head, by workloads in equal parts."""
    torch.manual_seed(settings.seed)
    head = TimeHead(train.hidden_NH.shape[1]).to(settings.device)
    nn.init.constant_(head.last.bias, float(train.log2_us_N.mean()))
    optimizer = torch.optim.AdamW(head.parameters(), settings.rate, weight_decay=settings.weight_decay)
    weight_N = _equal_parts(train.workload_N)
    steps_a_pass = math.ceil(len(train.log2_us_N) / settings.states)
    num_steps, recent, checks = settings.passes * steps_a_pass, list[float](), list[float]()
    for step in range(num_steps):
        if step % steps_a_pass == 0:
            order = torch.randperm(len(train.log2_us_N))
        rows = order[step % steps_a_pass * settings.states : (step % steps_a_pass + 1) * settings.states]
        expected = head(train.hidden_NH[rows].to(settings.device).float())
        errors = F.huber_loss(expected, train.log2_us_N[rows].to(settings.device), reduction="none", delta=0.5)
        loss = (errors * weight_N[rows].to(settings.device)).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        for group in optimizer.param_groups:
            group["lr"] = settings.rate * min(1.0, 2 * (1 - step / num_steps))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent = [*recent[-99:], float(loss.detach())]
        if (step + 1) % max(1, num_steps // 6) == 0:
            checks.append(_explained(head, validation.at(CRITIC_TOKEN))[0])
            log(f"step {step + 1} of {num_steps} loss {np.mean(recent):.4f} explained {checks[-1]:.3f}")
    explained, error = _explained(head, validation.at(CRITIC_TOKEN))
    report = CriticReport(
        train_workloads=len(set(train.workload_N.tolist())),
        validation_workloads=len(set(validation.workload_N.tolist())),
        states=len(train.log2_us_N),
        loss=float(np.mean(recent)),
        train_explained=_explained(head, train.at(CRITIC_TOKEN))[0],
        validation_explained=explained,
        validation_error=error,
        checks=checks,
    )
    return head, report


def _equal_parts(workload_N: Tensor) -> Tensor:
    """Weights of states, of mean 1, by which each workload counts the same."""
    counts = torch.bincount(workload_N).float().clamp(min=1)
    weight_N = 1 / counts[workload_N]
    return weight_N / weight_N.mean()


@torch.no_grad()
def _explained(head: TimeHead, states: States) -> tuple[float, float]:
    """Share of the variance of log2(time) over states, and the root of the mean square error."""
    errors = states.log2_us_N - head(states.hidden_NH.to(next(head.parameters()).device).float()).cpu()
    return float(1 - errors.var() / states.log2_us_N.var()), float(errors.square().mean().sqrt())
