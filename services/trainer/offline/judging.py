"""Samples from a policy without an engine, to judge it after training: are programs legal, and are they fast ones?

A sampled program that was measured before has a known time, so the held-out speed needs no GPU; one that is new counts
as unknown, never as fast.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from services.trainer.offline.prompt_pool import Asked, Device, PromptPool, asked_for
from services.trainer.offline.targets import WorkloadTargets
from services.trainer.policy_model import PolicyNetworks
from services.trainer.precision import precision
from services.trainer.tokenizer import BOS_ID, EOS_ID, PAD_ID, decode_program
from sparsesmith.policy.encoder import PromptBatch

IsLegal = Callable[[str, WorkloadTargets], bool]


@dataclass(frozen=True)
class SamplingSettings:
    """How to sample."""

    samples: int = 8
    """Programs for each workload."""
    temperature: float = 1.0
    min_p: float = 0.0
    """No token is sampled that is less likely, at the temperature, than this share of the likeliest."""
    max_program_tokens: int = 1024
    batch_sequences: int = 256
    architecture: str = "sm_90"
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class SamplingReport:
    """What the samples were worth. Shares are of all samples, but for the last three."""

    workloads: int
    samples: int
    legal_share: float
    """Accepted by the checker that was handed in (the contract's parser, a compiler)."""
    finished_share: float
    """Ended by themselves."""
    known_share: float
    """Were measured before for the same workload."""
    mean_tokens: float
    known_workloads: float
    """Share of workloads with at least one sample of known time."""
    best_over_baseline: float | None
    """Geometric mean over those: best baseline's time / best known sample's time."""
    best_over_oracle: float | None
    """Geometric mean over those: fastest measured program's time / best known sample's time; at most 1."""


@torch.no_grad()
def sample_programs(
    networks: PolicyNetworks, prompts: PromptBatch, tokenizer: Tokenizer, settings: SamplingSettings
) -> list[tuple[str, int, bool]]:
    """One program for each prompt: its text, its tokens, and whether it ended by itself."""
    networks.eval()
    with precision(settings.device):
        soft = networks.encoder(prompts)
        table = networks.model.get_input_embeddings()
        start = table(torch.full((len(soft), 1), BOS_ID, device=soft.device))
        sampled = networks.model.generate(  # type: ignore[misc]
            inputs_embeds=torch.cat([soft.to(start.dtype), start], dim=1),
            attention_mask=torch.ones(soft.shape[0], soft.shape[1] + 1, dtype=torch.long, device=soft.device),
            do_sample=settings.temperature > 0,
            temperature=settings.temperature or None,
            top_k=0,
            top_p=1.0,
            min_p=settings.min_p or None,
            max_new_tokens=settings.max_program_tokens,
            pad_token_id=PAD_ID,
            eos_token_id=EOS_ID,
        )
    rows = [row.tolist() for row in cast(Tensor, sampled).cpu()]
    return [(decode_program(tokenizer, row), _length(row), EOS_ID in row) for row in rows]


def evaluate_policy(
    networks: PolicyNetworks,
    pool: PromptPool,
    workloads: Sequence[WorkloadTargets],
    tokenizer: Tokenizer,
    settings: SamplingSettings,
    is_legal: IsLegal,
) -> SamplingReport:
    """Samples programs for each workload and looks up what is known of them."""
    torch.manual_seed(settings.seed)
    generator = np.random.default_rng(settings.seed)
    asked = [workload for workload in workloads for _ in range(settings.samples)]
    results: list[tuple[str, int, bool]] = []
    for start in range(0, len(asked), settings.batch_sequences):
        part = asked[start : start + settings.batch_sequences]
        asked_of = [_asked(workload, settings) for workload in part]
        prompts = pool.batch([workload.key.pattern for workload in part], asked_of, generator)
        results += sample_programs(networks, prompts, tokenizer, settings)
    return _summary(workloads, asked, results, is_legal)


def _summary(
    workloads: Sequence[WorkloadTargets],
    asked: Sequence[WorkloadTargets],
    results: Sequence[tuple[str, int, bool]],
    is_legal: IsLegal,
) -> SamplingReport:
    best: dict[int, float] = {}
    known = legal = 0
    for workload, (program, _, _) in zip(asked, results, strict=True):
        legal += is_legal(program, workload)
        time_us = workload.time_of(program)
        if time_us is not None:
            known += 1
            best[id(workload)] = min(time_us, best.get(id(workload), math.inf))
    found = [workload for workload in workloads if id(workload) in best]
    count = max(len(results), 1)
    return SamplingReport(
        workloads=len(workloads),
        samples=len(results),
        legal_share=legal / count,
        finished_share=sum(ended for _, _, ended in results) / count,
        known_share=known / count,
        mean_tokens=sum(tokens for _, tokens, _ in results) / count,
        known_workloads=len(found) / max(len(workloads), 1),
        best_over_baseline=_geometric_mean(
            [each.best_baseline_us / best[id(each)] for each in found if each.best_baseline_us is not None]
        ),
        best_over_oracle=_geometric_mean([each.measured[0].median_us / best[id(each)] for each in found]),
    )


def _asked(workload: WorkloadTargets, settings: SamplingSettings) -> Asked:
    key = workload.key
    return asked_for(key.operation, key.element_type, key.num_dense_cols, Device(settings.architecture))


def _length(row: Sequence[int]) -> int:
    return row.index(EOS_ID) + 1 if EOS_ID in row else len(row)


def _geometric_mean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
