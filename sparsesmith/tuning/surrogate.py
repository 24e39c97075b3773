"""What the measurements of one matrix say of the prospects that were not measured: a Gaussian process on what the cost
model got wrong.

The error of a cost model is the sum of independent normal parts: one of the workload, one of each family, one that
neighbouring parameters of a family share, and noise (Rasmussen and Williams, Gaussian Processes for Machine Learning,
2006, chapter 2). Measurements are taken in one at a time, each a rank-one update of the posterior.
"""

import math
from copy import copy

import numpy as np

from sparsesmith.tuning.cost import Doubt
from sparsesmith.tuning.grid import Choices, FloatArray

MIN_VARIANCE = 1e-10
STRANGE_FAMILY_DOUBT = 0.35
"""Instead of `Doubt.family` for a family that the cost model hardly knows: such a family gets its try."""


class Surrogate:
    """Posterior mean and deviation of the log time of every prospect of a grid."""

    def __init__(
        self, grid: Choices, log_costs: FloatArray, doubt: Doubt, seldom_seen: frozenset[str] = frozenset()
    ) -> None:
        self._family = grid.family_numbers()
        self._coordinates = grid.coordinates()
        self._doubt = doubt
        strange = np.isin(grid.families, list(seldom_seen))
        self._family_variance = np.where(strange, max(STRANGE_FAMILY_DOUBT, doubt.family), doubt.family) ** 2
        self._factors: list[FloatArray] = []
        self.mean = log_costs.copy()
        self._variance = doubt.workload**2 + self._family_variance + doubt.parameters**2

    @property
    def deviation(self) -> FloatArray:
        """Of the expected log time, noise left out; shape [prospects]."""
        return np.asarray(np.sqrt(np.maximum(self._variance, MIN_VARIANCE)), np.float64)

    def observe(self, index: int, log_time: float) -> None:
        """Takes in a measurement."""
        factor, own = self._factor(index)
        self.mean = self.mean + factor * ((log_time - self.mean[index]) / own)
        self._take(factor)

    def suppose(self, index: int) -> None:
        """As if a prospect had been measured as expected: the deviations shrink, the means stay."""
        self._take(self._factor(index)[0])

    def copy(self) -> "Surrogate":
        """To suppose things on."""
        other = copy(self)
        other._factors = list(self._factors)
        return other

    def _factor(self, index: int) -> tuple[FloatArray, float]:
        """The posterior covariance with one prospect over the deviation of its measurement, and that deviation."""
        covariance = self._covariance(index)
        for factor in self._factors:
            covariance -= factor * factor[index]
        own = math.sqrt(max(covariance[index], MIN_VARIANCE) + self._doubt.noise**2)
        return covariance / own, own

    def _take(self, factor: FloatArray) -> None:
        self._factors.append(factor)
        self._variance = self._variance - factor**2

    def _covariance(self, index: int) -> FloatArray:
        doubt = self._doubt
        squared = ((self._coordinates - self._coordinates[index]) ** 2).sum(axis=1)
        near = self._family_variance + doubt.parameters**2 * np.exp(-0.5 * squared / doubt.reach**2)
        return np.asarray(doubt.workload**2 + np.where(self._family == self._family[index], near, 0.0), np.float64)
