"""Times on inputs that are hard on usual programs."""

from collections.abc import Callable, Sequence

from services.evaluator.device import Draw, RunFailure, Timing
from sparsesmith_proto.kernel import AdverseTiming


def slowest(draws: Sequence[Draw], time_on: Callable[[Draw], Timing | RunFailure]) -> AdverseTiming | RunFailure | None:
    """The longest of the times on each; the first failure where there is one, None of no draws."""
    found: AdverseTiming | None = None
    for draw in draws:
        timing = time_on(draw)
        if isinstance(timing, RunFailure):
            return timing
        if found is None or timing.median_us > found.timing.median_us:
            found = AdverseTiming(draw=draw.name, timing=timing)
    return found
