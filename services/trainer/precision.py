"""The arithmetic that training runs in."""

from contextlib import AbstractContextManager, nullcontext

import torch


def precision(device: str) -> AbstractContextManager[object]:
    """bfloat16 arithmetic on a GPU; float32 elsewhere."""
    return torch.autocast("cuda", dtype=torch.bfloat16) if device.startswith("cuda") else nullcontext()
