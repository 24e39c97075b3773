"""How busy the GPUs are that this process may see, as NVML tells it.

What is measured: at each look, the share of the driver's last sample period (1/6 s to 1 s, by the GPU) in which at
least one kernel ran. A GPU that runs one small kernel after the other counts as busy: this bounds what is idle from
below, and says nothing of how well the GPU is used.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

Read = Callable[[], float]
"""Share of a GPU's last sample period in which it was busy."""


class GpuUse:
    """Means over looks; without NVML or a GPU there is nothing to look at."""

    def __init__(self, gpus: Sequence[Read] | None = None) -> None:
        """`gpus`: else those of CUDA_VISIBLE_DEVICES, or all."""
        self._gpus = _visible() if gpus is None else list(gpus)
        self._busy = [0.0] * len(self._gpus)
        self._looks = 0

    def look(self) -> None:
        for number, read in enumerate(self._gpus):
            self._busy[number] += read()
        self._looks += 1

    def shares(self) -> list[float]:
        """Of each GPU; empty before the first look."""
        return [round(each / self._looks, 4) for each in self._busy] if self._looks else []


def _visible() -> list[Read]:
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names in ("", "-1") or find_spec("pynvml") is None:
        return []
    import pynvml

    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        chosen = names.split(",") if names else [str(number) for number in range(pynvml.nvmlDeviceGetCount())]
        readers = [_reader(pynvml, _handle(pynvml, each.strip())) for each in chosen]
        for read in readers:
            read()  # Some drivers do not tell: of a GPU in parts, for one.
        return readers
    return []


def _handle(pynvml: Any, name: str) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else pynvml.nvmlDeviceGetHandleByUUID(name)


def _reader(pynvml: Any, handle: Any) -> Read:
    return lambda: float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
