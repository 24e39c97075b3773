"""Prompt arrays of many patterns, several samples each, held as tensors where training runs.

Sampling nonzeros takes milliseconds on a CPU, a training step on a GPU about as long: so each pattern is sampled
`samples` times ahead and an epoch takes from those.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.profile import CURVE_NAMES
from sparsesmith.policy.encoder import PromptBatch, collate
from sparsesmith.prompts.arrays import (
    PROFILED,
    EncoderKind,
    PromptInputs,
    feature_names,
    matrix_inputs,
    pattern_features,
)
from sparsesmith.prompts.circumstances import CIRCUMSTANCE_NAMES, circumstance_features
from sparsesmith.prompts.header import header
from sparsesmith_proto.message import ElementType


@dataclass(frozen=True)
class Noise:
    """Random changes to prompts while training, so that few matrices teach more than themselves."""

    feature_std: float = 0.05
    """Of features but EXACT_FEATURES."""
    token_dropout: float = 0.1
    """Share of matrix tokens whose arrays are blanked."""
    feature_dropout: float = 0.05
    """Share of single features set to zero; never EXACT_FEATURES."""


EXACT_FEATURES = frozenset(
    {"log_rows", "log_cols", "log_nnz", "log_row_max", "log_diagonals", "empty_rows"}
    | {"narrow_columns", "narrow_slices", "narrow_row_blocks"}
    | {*CURVE_NAMES, *CIRCUMSTANCE_NAMES}
)
"""Whether a program is right may depend on these: that the longest row has 33 nonzeros, not 32, that all columns fit
into 16 bits. They are shown as they are."""


@dataclass(frozen=True)
class Asked:
    """What a program is asked for, beside the matrix."""

    header: Tensor
    """Ids, shape [4]."""
    circumstances: Tensor
    """In the order of CIRCUMSTANCE_NAMES."""


@dataclass(frozen=True)
class Device:
    """On which records were measured: what prompts of the same programs say."""

    architecture: str = "sm_90"
    num_sms: int = 132
    copy_bandwidth_gbs: float = 4260.0


def asked_for(operation: str, element_type: ElementType, num_dense_cols: int, device: Device) -> Asked:
    """On a device."""
    ids = header(operation, element_type, num_dense_cols, device.architecture)
    known = circumstance_features(num_dense_cols, element_type, device.num_sms, device.copy_bandwidth_gbs)
    return Asked(torch.from_numpy(ids), torch.from_numpy(known))


class PromptPool:
    """Prompts by pattern, sample and what is asked for."""

    def __init__(self, names: Sequence[str], prompts: Sequence[Sequence[PromptInputs]], device: str) -> None:
        flat = collate([prompt for samples in prompts for prompt in samples])
        self._rows = {name: index for index, name in enumerate(names)}
        self._samples = len(prompts[0])
        self._kind = prompts[0][0].encoder
        half = torch.float16 if device.startswith("cuda") else torch.float32
        self._features = flat.features.to(device)
        self._points = flat.points.to(device, half)
        self._mask = flat.mask.to(device)
        self._windows = flat.windows.to(device)

    def batch(
        self,
        names: Sequence[str],
        asked: Sequence[Asked],
        generator: np.random.Generator,
        noise: Noise | None = None,
    ) -> PromptBatch:
        """A random sample of each pattern named, each asked for its own."""
        samples = generator.integers(self._samples, size=len(names))
        rows = torch.tensor([self._rows[name] * self._samples + int(s) for name, s in zip(names, samples, strict=True)])
        rows = rows.to(self._features.device)
        features = self._features[rows]
        if self._kind in PROFILED:
            circumstances = torch.stack([each.circumstances for each in asked]).to(rows.device)
            features = torch.cat([features, circumstances], dim=1)
        prompts = PromptBatch(
            torch.stack([each.header for each in asked]).to(rows.device),
            features,
            self._points[rows].float(),
            self._mask[rows],
            self._windows[rows],
        )
        return prompts if noise is None else disturbed(prompts, noise, self._kind)


def disturbed(batch: PromptBatch, noise: Noise, kind: EncoderKind) -> PromptBatch:
    """The batch with noisy features and some matrix tokens blanked."""
    features = batch.features + noise.feature_std * torch.randn_like(batch.features)
    features = features * (torch.rand_like(features) >= noise.feature_dropout)
    exact = torch.tensor([name in EXACT_FEATURES for name in feature_names(kind)], device=features.device)
    features = torch.where(exact, batch.features, features)
    kept = torch.rand(batch.mask.shape[:2], device=batch.mask.device) >= noise.token_dropout
    return PromptBatch(
        batch.header_ids,
        features,
        batch.points * kept[..., None, None],
        batch.mask & kept[..., None],
        batch.windows * kept[..., None],
    )


def build_pool(
    patterns: Mapping[str, Pattern], encoder: EncoderKind, samples: int, device: str, processes: int = 1
) -> PromptPool:
    """Samples every pattern `samples` times."""
    jobs = [(pattern, encoder, samples) for pattern in patterns.values()]
    with ProcessPoolExecutor(processes) if processes > 1 else nullcontext() as pool:
        prompts = list(map(_sampled, jobs) if pool is None else pool.map(_sampled, jobs, chunksize=4))
    return PromptPool(list(patterns), prompts, device)


def _sampled(job: tuple[Pattern, EncoderKind, int]) -> list[PromptInputs]:
    pattern, encoder, samples = job
    features, no_header = pattern_features(pattern, encoder), np.zeros(4, np.int64)
    return [matrix_inputs(pattern, encoder, seed, no_header, features) for seed in range(samples)]
