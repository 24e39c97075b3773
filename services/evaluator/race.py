"""Racing: every kernel is timed briefly, those near the front fully, the finalists in turns with the best baseline."""

from services.evaluator.device import RunFailure, Timing
from services.evaluator.workbench import Workbench
from sparsesmith_proto.kernel import MeasuredTiming

CONTENDER_RATIO = 1.15
"""Within this factor of the best so far a kernel is timed at full effort: a quick time is good to a few per cent."""

MAX_FINALISTS = 4


class Race:
    """The fastest kernels of a batch so far; the best baseline runs along."""

    def __init__(self, baseline_us: float) -> None:
        self._best_us = baseline_us
        self._finalists: dict[str, float] = {}

    def time(self, kernel_id: str, bench: Workbench) -> Timing | RunFailure:
        """Times a checked kernel with the effort it deserves. It stays loaded only while it is a finalist."""
        timing = bench.time(kernel_id, "quick")
        if isinstance(timing, MeasuredTiming) and timing.median_us <= CONTENDER_RATIO * self._best_us:
            timing = bench.time(kernel_id, "full")
        if not isinstance(timing, RunFailure):
            for loser in self._enter(kernel_id, timing.median_us):
                bench.unload(loser)
        return timing

    @property
    def finalists(self) -> tuple[str, ...]:
        """Kernels within reach of the best, the fastest first."""
        near = {kernel_id: us for kernel_id, us in self._finalists.items() if us <= CONTENDER_RATIO * self._best_us}
        return tuple(sorted(near, key=near.__getitem__))

    def _enter(self, kernel_id: str, median_us: float) -> list[str]:
        self._best_us = min(self._best_us, median_us)
        self._finalists[kernel_id] = median_us
        ranking = sorted(self._finalists, key=self._finalists.__getitem__)
        losers = [name for name in ranking if name not in self.finalists[:MAX_FINALISTS]]
        for name in losers:
            del self._finalists[name]
        return losers
