"""The arithmetic that training runs in."""

from contextlib import AbstractContextManager, nullcontext

import torch


def precision(device: str, *, is_short: bool = False) -> AbstractContextManager[object]:
    """bfloat16 arithmetic on a GPU; float32 elsewhere, or bfloat16 there, too, if it `is_short`."""
    if device.startswith("cuda"):
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return torch.autocast("cpu", dtype=torch.bfloat16) if is_short else nullcontext()
