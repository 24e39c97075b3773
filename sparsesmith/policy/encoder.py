"""The matrix encoder: the arrays of a prompt -> soft tokens in the language model's embedding space."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sparsesmith.prompts.arrays import (
    SINGLE_NONZEROS,
    WINDOW_WIDTH,
    EncoderKind,
    PromptInputs,
    code_width,
    feature_names,
)
from sparsesmith.prompts.header import FIRST_HEADER_SIZES, HEADER_SIZES, rows_of_first_table

NUM_FEATURE_TOKENS = 4


@dataclass(frozen=True)
class PromptBatch:
    """Prompts of one encoder kind as tensors, first dimension the batch. See PromptInputs for the other shapes."""

    header_ids: Tensor
    features: Tensor
    points: Tensor
    mask: Tensor
    windows: Tensor

    def to(self, device: str | torch.device) -> "PromptBatch":
        return PromptBatch(*(tensor.to(device, non_blocking=True) for tensor in vars(self).values()))


def collate(prompts: Sequence[PromptInputs]) -> PromptBatch:
    """Stacks prompts. They must be of one encoder kind."""
    return PromptBatch(
        torch.from_numpy(np.stack([prompt.header_ids for prompt in prompts])),
        torch.from_numpy(np.stack([prompt.features for prompt in prompts])),
        torch.from_numpy(np.stack([prompt.points for prompt in prompts])),
        torch.from_numpy(np.stack([prompt.mask for prompt in prompts])),
        torch.from_numpy(np.stack([prompt.windows for prompt in prompts])),
    )


class MatrixEncoder(nn.Module):
    """Header tokens, feature tokens (not of single nonzeros) and matrix tokens, in that order.

    `structural`: each window of rows pools its sampled nonzeros, after a small network, by mean and by maximum.
    `profiled`: the same, with the curve of row lengths, column reuse, dense columns and device among the features.
    `features`, `shuffled`, `blind`: networks of `profiled`, shown no nonzeros, a made matrix, and nothing of any.
    `sinusoidal`, `sinusoidal_1024`: one linear layer on e = [PE(row), PE(col)] of single nonzeros, as in SparseRL.
    `min_max`, `raw_indices`: the same on row and column as shares of the matrix, and as they are.
    The output is scaled to the size of the language model's own embeddings (`embedding_rms`).
    """

    def __init__(self, kind: EncoderKind, hidden: int, embedding_rms: float = 0.05) -> None:
        super().__init__()
        self.kind = kind
        self.hidden = hidden
        self.header = nn.Embedding(sum(HEADER_SIZES), hidden)
        self.register_load_state_dict_pre_hook(_make_room)  # type: ignore[no-untyped-call]
        offsets = torch.tensor([0, *HEADER_SIZES[:-1]]).cumsum(0)
        self.register_buffer("header_offsets", offsets, persistent=False)
        if kind not in SINGLE_NONZEROS:
            width = hidden // 2
            self.features = nn.Sequential(
                nn.Linear(len(feature_names(kind)), hidden), nn.GELU(), nn.Linear(hidden, NUM_FEATURE_TOKENS * hidden)
            )
            self.points = nn.Sequential(
                nn.Linear(code_width(kind), width), nn.GELU(), nn.Linear(width, width), nn.GELU()
            )
            self.tokens = nn.Linear(2 * width + WINDOW_WIDTH, hidden)
        else:
            self.tokens = nn.Linear(code_width(kind), hidden)
        self.norm = nn.RMSNorm(hidden, eps=1e-6)
        nn.init.constant_(self.norm.weight, embedding_rms)

    @property
    def num_tokens_before_matrix(self) -> int:
        """Header and feature tokens."""
        return len(HEADER_SIZES) + (0 if self.kind in SINGLE_NONZEROS else NUM_FEATURE_TOKENS)

    def forward(self, batch: PromptBatch) -> Tensor:
        """Soft tokens, shape [batch, num_tokens_before_matrix + matrix tokens, hidden]."""
        parts = [self.header(batch.header_ids + self.get_buffer("header_offsets"))]
        if self.kind not in SINGLE_NONZEROS:
            parts.append(self.features(batch.features).unflatten(-1, (NUM_FEATURE_TOKENS, self.hidden)))
            parts.append(self.tokens(torch.cat([self._pool(batch), batch.windows], dim=-1)))
        else:
            parts.append(self.tokens(batch.points.squeeze(-2)))
        soft: Tensor = self.norm(torch.cat(parts, dim=1))
        return soft

    def _pool(self, batch: PromptBatch) -> Tensor:
        """Mean and maximum over the points of each token; zero where a token has none."""
        codes: Tensor = self.points(batch.points)
        present = batch.mask.unsqueeze(-1)
        count = present.sum(dim=-2).clamp(min=1)
        mean = (codes * present).sum(dim=-2) / count
        highest = codes.masked_fill(~present, -math.inf).amax(dim=-2)
        highest = torch.where(present.any(dim=-2), highest, torch.zeros_like(highest))
        return torch.cat([mean, highest.to(mean.dtype)], dim=-1)


def with_room(table: Tensor) -> Tensor:
    """A table of header embeddings, shape [rows, hidden], with room for all reserved ids; new rows are zero."""
    if len(table) != sum(FIRST_HEADER_SIZES):
        return table
    roomy = table.new_zeros(sum(HEADER_SIZES), table.shape[1])
    roomy[torch.from_numpy(rows_of_first_table()).to(table.device)] = table
    return roomy


def _make_room(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Weights that were trained before ids were reserved are read as they are."""
    name = f"{prefix}header.weight"
    if name in state:
        state[name] = with_room(state[name])
