"""Processes that make an update together, as torchrun starts them: each works on a part of every minibatch, and
gradients are added up.

The first process collects, publishes and keeps the state; the others follow it. What it was told or loaded since the
last update goes to them with the next one. Not protected against: a process that dies; torchrun ends the others, and
the trainer goes on from its checkpoint.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

Row = TypeVar("Row")


@dataclass(frozen=True)
class Ranks:
    """One process alone where `count` is 1: then nothing is sent."""

    index: int = 0
    count: int = 1
    device: str = "cpu"

    @property
    def leads(self) -> bool:
        return self.index == 0

    def part(self, rows: Sequence[Row]) -> list[Row]:
        """This process's share."""
        return list(rows[self.index :: self.count])

    def total(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Of all processes."""
        if self.count == 1:
            return dict(numbers)
        sums = torch.tensor(list(numbers.values()), dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return dict(zip(numbers, sums.tolist(), strict=True))

    def add_up(self, parameters: Sequence[nn.Parameter]) -> None:
        """Gradients of all processes; a parameter that has none anywhere still has none."""
        if self.count == 1:
            return
        known = torch.tensor([parameter.grad is not None for parameter in parameters], device=self.device).float()
        dist.all_reduce(known)
        for parameter, has_any in zip(parameters, known.tolist(), strict=True):
            if has_any:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad)

    def agree(self, tensors: Sequence[Tensor]) -> None:
        """Everybody takes the first process's: roundings differ from device to device."""
        if self.count > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def tell(self, order: object) -> None:
        """To those that follow."""
        if self.count > 1:
            dist.broadcast_object_list([order], src=0, device=torch.device(self.device))

    def told(self) -> Any:
        """What the first process tells; waits for it."""
        order: list[object] = [None]
        dist.broadcast_object_list(order, src=0, device=torch.device(self.device))
        return order[0]


def ranks(device: str) -> Ranks:
    """As torchrun's environment says; one process alone without it."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return Ranks(device=device)
    if device == "cuda":
        device = f"cuda:{int(os.environ['LOCAL_RANK'])}"
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    return Ranks(dist.get_rank(), count, device)
