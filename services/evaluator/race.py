"""Racing: every kernel is timed briefly, the front of the field again at length, in turns with the best baseline."""

import math

from services.evaluator.device import RunFailure, Timing
from services.evaluator.isolation.workbench import Workbench

FINALIST_RATIO = 1.06
"""Within this factor of the best a kernel is timed again: a brief time is good to a few per cent."""

MAX_FINALISTS = 6


class Race:
    """The fastest kernels of a batch so far; the best baseline runs along."""

    def __init__(self, baseline_us: float) -> None:
        self._best_us = baseline_us
        self._finalists: dict[str, float] = {}

    def time(self, kernel_id: str, workbench: Workbench, *, is_paid: bool = True) -> Timing | RunFailure:
        """Times a checked kernel. It stays loaded only while it is a finalist.

        `is_paid`: whether its time counts wherever in the field it lies. Else replays are spared where it can be no
        finalist any more: those are within reach of the best, which only gets faster.
        """
        vouched_to_us = math.inf if is_paid else FINALIST_RATIO * self._best_us
        timing = workbench.time(kernel_id, vouched_to_us)
        if not isinstance(timing, RunFailure):
            for loser in self._enter(kernel_id, timing.median_us):
                workbench.unload(loser)
        return timing

    @property
    def finalists(self) -> tuple[str, ...]:
        """Kernels within reach of the best, the fastest first."""
        near = {kernel_id: us for kernel_id, us in self._finalists.items() if us <= FINALIST_RATIO * self._best_us}
        return tuple(sorted(near, key=near.__getitem__))

    def _enter(self, kernel_id: str, median_us: float) -> list[str]:
        self._best_us = min(self._best_us, median_us)
        self._finalists[kernel_id] = median_us
        ranking = sorted(self._finalists, key=self._finalists.__getitem__)
        losers = [name for name in ranking if name not in self.finalists[:MAX_FINALISTS]]
        for name in losers:
            del self._finalists[name]
        return losers
