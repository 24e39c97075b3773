"""Prompt arrays of many patterns, several samples each, held as tensors where training runs.

Sampling nonzeros takes milliseconds on a CPU, a training step on a GPU about as long: so each pattern is sampled
`samples` times ahead and an epoch draws from those.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sparsesmith.matrix.features import FEATURE_NAMES, structural_features
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.encoder import PromptBatch, collate
from sparsesmith.prompts.arrays import EncoderKind, PromptInputs, matrix_inputs
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
)
"""Whether a program is right may depend on these: that the longest row has 33 nonzeros, not 32, that all columns fit
into 16 bits. They are shown as they are."""

_EXACT = torch.tensor([name in EXACT_FEATURES for name in FEATURE_NAMES])


class PromptPool:
    """Prompts by (pattern, sample, header)."""

    def __init__(self, names: Sequence[str], prompts: Sequence[Sequence[PromptInputs]], device: str) -> None:
        flat = collate([prompt for samples in prompts for prompt in samples])
        self._rows = {name: index for index, name in enumerate(names)}
        self._samples = len(prompts[0])
        half = torch.float16 if device.startswith("cuda") else torch.float32
        self._features = flat.features.to(device)
        self._points = flat.points.to(device, half)
        self._mask = flat.mask.to(device)
        self._windows = flat.windows.to(device)

    def batch(
        self,
        names: Sequence[str],
        headers: Sequence[Tensor],
        generator: np.random.Generator,
        noise: Noise | None = None,
    ) -> PromptBatch:
        """A random sample of each pattern named, under these headers."""
        samples = generator.integers(self._samples, size=len(names))
        rows = torch.tensor([self._rows[name] * self._samples + int(s) for name, s in zip(names, samples, strict=True)])
        rows = rows.to(self._features.device)
        drawn = PromptBatch(
            torch.stack(list(headers)).to(rows.device),
            self._features[rows],
            self._points[rows].float(),
            self._mask[rows],
            self._windows[rows],
        )
        return drawn if noise is None else disturbed(drawn, noise)


def disturbed(batch: PromptBatch, noise: Noise) -> PromptBatch:
    """The batch with noisy features and some matrix tokens blanked."""
    features = batch.features + noise.feature_std * torch.randn_like(batch.features)
    features = features * (torch.rand_like(features) >= noise.feature_dropout)
    features = torch.where(_EXACT.to(features.device), batch.features, features)
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


def header_tensor(operation: str, element_type: ElementType, num_dense_cols: int, architecture: str) -> Tensor:
    """Header ids as a tensor, shape [4]."""
    return torch.from_numpy(header(operation, element_type, num_dense_cols, architecture))


def _sampled(job: tuple[Pattern, EncoderKind, int]) -> list[PromptInputs]:
    pattern, encoder, samples = job
    features, no_header = structural_features(pattern), np.zeros(4, np.int64)
    return [matrix_inputs(pattern, encoder, seed, no_header, features=features) for seed in range(samples)]
