"""The time of a short kernel over several placements of its buffers (needs no device).

Which L2 slice serves a line depends on its address. A kernel of one or two microseconds waits for the busiest slice, so
the same program on the same matrix may take a tenth or more longer at some addresses than at others, and the same time
at one placement again and again (benchmarks/REPORT.md: how far placements lie apart). Nobody chooses the addresses of x
and y, so what is reported is the mean: what a product takes where its buffers happen to lie. It also keeps a program
from being the fastest of many for the luck of its addresses.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from scipy.special import stdtrit

from services.evaluator.measuring.interval import CONFIDENCE, TimingBudget
from sparsesmith_proto.kernel import MeasuredTiming

PLACED_BELOW_US = 10.0
"""A field whose fastest takes longer is timed at one placement: many lines even out."""

SURELY_BELOW = 0.8
"""A share of that: a brief time is good to a few per cent, and beyond it nobody needs to look again."""

NUM_PLACEMENTS = 6

AT_A_PLACEMENT = TimingBudget(
    target_batch_us=250.0, max_repeats=256, min_batches=3, max_batches=3, relative_interval=0.03, cold_runs=3
)
"""About 4 ms of device time a program and placement."""


def is_surely_placed(brief_us: Iterable[float]) -> bool:
    """Whether a field with these brief times is timed at several placements, whatever else is in it: the fastest of all
    is no slower than the fastest of some."""
    return min(brief_us, default=math.inf) <= SURELY_BELOW * PLACED_BELOW_US


def over_placements(timings: Sequence[MeasuredTiming]) -> MeasuredTiming:
    """Means of two or more timings of one program, each at a placement of its own.

    The interval is that of the mean, Student's t over the placements. Stable: nothing disturbed any of them, and at
    each placement the batches agree.
    """
    medians = [timing.median_us for timing in timings]
    mean_us = fmean(medians)
    margin_us = mean_margin(medians)
    disturbances = dict.fromkeys(what for timing in timings for what in timing.disturbances)
    agree = all(timing.relative_interval <= AT_A_PLACEMENT.relative_interval for timing in timings)
    return MeasuredTiming(
        median_us=mean_us,
        low_us=max(mean_us - margin_us, 0.0),
        high_us=mean_us + margin_us,
        cold_us=fmean(timing.cold_us for timing in timings),
        num_batches=sum(timing.num_batches for timing in timings),
        stable=agree and not disturbances,
        sm_clock_mhz=timings[-1].sm_clock_mhz,
        num_attempts=max(timing.num_attempts for timing in timings),
        disturbances=tuple(disturbances),
        placements_us=tuple(medians),
    )


def mean_margin(samples: Sequence[float]) -> float:
    """Half the confidence interval of the mean of two or more independent samples: t s / sqrt(n)."""
    quantile = float(stdtrit(len(samples) - 1, (1 + CONFIDENCE) / 2))
    return quantile * stdev(samples) / math.sqrt(len(samples))
