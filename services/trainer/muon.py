"""Muon (Jordan et al. 2024) whose Newton-Schulz iteration runs in float32 on a CPU, unless it is told otherwise, and in
bfloat16 on a GPU.

`torch.optim.Muon` (2.11 to 2.13) converts every update to bfloat16, which GPUs multiply fast and many CPUs emulate: a
step of the shipped policy took 86 s on two such cores where float32 took 3.8 s. State and options are torch's own, so
that checkpoints of either are read by the other.
"""

import math
from typing import Any

import torch
from torch import Tensor


class Muon(torch.optim.Muon):
    """`torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"`, but for the type it orthogonalises in."""

    def __init__(
        self, parameters: list[torch.nn.Parameter], *, lr: float, weight_decay: float, bfloat16: bool = False
    ) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        self._on_cpu = torch.bfloat16 if bfloat16 else torch.float32

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """As torch's own, in the same order."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        momentum: Tensor = self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(gradient))
        momentum.lerp_(gradient, 1 - group["momentum"])
        update = gradient.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
        as_type = self._on_cpu if update.device.type == "cpu" else torch.bfloat16
        update = orthogonalized(update.to(as_type), group["ns_coefficients"], group["ns_steps"], group["eps"])
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(update, alpha=-group["lr"] * 0.2 * math.sqrt(max(parameter.shape)))


def orthogonalized(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """About U V^T of a matrix U S V^T, by `steps` of a quintic Newton-Schulz iteration; its smaller side squared.

    In the matrix's own arithmetic.
    """
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
