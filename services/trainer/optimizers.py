"""Muon for the weight matrices inside the layers, AdamW for the rest; and a learning-rate schedule over progress."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from services.trainer.muon import Muon
from sparsesmith.policy.encoder import with_room


@dataclass(frozen=True)
class Schedule:
    """Warm-up, plateau, linear decay, over progress from 0 to 1."""

    warmup: float = 0.03
    decay: float = 0.5
    """Share of the run, at its end, over which the rate falls."""
    floor: float = 0.02
    """Rate at the end relative to the plateau."""

    def factor(self, progress: float) -> float:
        """Learning rate relative to the plateau."""
        rising = min(1.0, (progress + 0.002) / self.warmup) if self.warmup > 0 else 1.0
        falling = min(1.0, (1.0 - progress) / self.decay) if self.decay > 0 else 1.0
        return max(self.floor, rising * falling) if progress > self.warmup else rising


class Optimizer:
    """Two optimizers that step as one."""

    def __init__(
        self,
        modules: Iterable[nn.Module],
        *,
        matrix_rate: float,
        other_rate: float,
        decay: float,
        bfloat16: bool = False,
    ) -> None:
        matrices, others = _divide(modules)
        parts = [_adamw(others, other_rate)]
        if matrices:
            parts.append(Muon(matrices, lr=matrix_rate, weight_decay=decay, bfloat16=bfloat16))
        self._begin(parts, [*matrices, *others])

    @classmethod
    def plain(cls, parameters: Sequence[nn.Parameter], rate: float) -> Self:
        """AdamW for all of them."""
        optimizer = cls.__new__(cls)
        optimizer._begin([_adamw(parameters, rate)], list(parameters))
        return optimizer

    def _begin(self, parts: list[torch.optim.Optimizer], parameters: list[nn.Parameter]) -> None:
        self._parts = parts
        self._parameters = parameters
        self._rates = [[group["lr"] for group in part.param_groups] for part in self._parts]

    def step(self, factor: float, max_norm: float = 1.0) -> float:
        """Clips gradients, steps at `factor` times the configured rates, clears gradients. Returns their norm."""
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, max_norm)
        for part, rates in zip(self._parts, self._rates, strict=True):
            for group, rate in zip(part.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            part.step()
            part.zero_grad(set_to_none=True)
        return float(norm)

    def state_dict(self) -> list[dict[str, Any]]:
        """State of each part, for a checkpoint."""
        return [part.state_dict() for part in self._parts]

    def load_state_dict(self, states: Sequence[dict[str, Any]]) -> None:
        """The inverse of `state_dict`, for the same networks; the rates stay those of this optimizer.

        Moments of header embeddings from before ids were reserved get room as the embeddings do.
        """
        for part, state, rates in zip(self._parts, states, self._rates, strict=True):
            part.load_state_dict(state)
            for parameter, moments in part.state.items():
                moments.update({name: _with_room(each, parameter) for name, each in moments.items()})
            for group, rate in zip(part.param_groups, rates, strict=True):
                group["lr"] = rate


def _adamw(parameters: Sequence[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)


def _with_room(moment: Any, parameter: Tensor) -> Any:
    is_table = isinstance(moment, Tensor) and moment.ndim == parameter.ndim == 2 and moment.shape != parameter.shape
    return with_room(moment) if is_table else moment


def _divide(modules: Iterable[nn.Module]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Two-dimensional weights of layers, and everything else (embeddings, norms, biases). Tied weights once."""
    matrices: dict[int, nn.Parameter] = {}
    others: dict[int, nn.Parameter] = {}
    for module in modules:
        for name, parameter in module.named_parameters():
            inside = parameter.ndim == 2 and ".layers." in name
            (matrices if inside else others)[id(parameter)] = parameter
    return list(matrices.values()), list(others.values())
