"""95 % intervals by bootstrap: what a figure was counted of is drawn anew, with putting back; the same draws each time."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000


class Interval(NamedTuple):
    """A figure, and where 95 % of the resampled ones lie."""

    mean: float
    low: float
    high: float

    def rounded(self, digits: int = 4) -> dict[str, float]:
        """As result files keep it."""
        return {name: round(value, digits) for name, value in self._asdict().items()}


def resampled(count: int, figure: Callable[[NDArray[np.int64]], NDArray[np.float64]]) -> tuple[float, float]:
    """95 % of a figure of so many things.

    `figure`: of the things' numbers, shape [RESAMPLES, count] -> [RESAMPLES], or fewer, where some draws have none.
    """
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    low, high = np.quantile(figure(drawn), [0.025, 0.975])
    return float(low), float(high)


def mean_interval(values: Sequence[float]) -> Interval:
    known = np.array(values)
    return Interval(float(known.mean()), *resampled(len(known), lambda drawn: known[drawn].mean(axis=1)))


def geometric_interval(values: Sequence[float]) -> Interval:
    """As mean_interval, of geometric means."""
    return Interval(*map(math.exp, mean_interval([math.log(value) for value in values])))
