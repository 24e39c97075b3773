"""Autotuning of one workload, as batches out and measurements in. No clock, no device, no chance: a replay of the same
measurements asks for the same programs.

    tuner = Tuner(grid_of(pattern, "spmv", "float32"), cost_model)
    while not tuner.done:
        for instance in tuner.next_batch(8):
            tuner.tell(instance, measure(instance.program))

The whole grid is ranked by the cost model; measured times correct it through the surrogate; each next program is the
one with the largest expected improvement, given what was asked for already. It ends when the budget is spent, when
nothing is left that is likely to be faster by more than the noise, or when many in a row brought nothing.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtr

from sparsesmith.families import FamilyInstance
from sparsesmith.tuning.cost import CostModel
from sparsesmith.tuning.grid import BoolArray, Choices, FloatArray
from sparsesmith.tuning.surrogate import Surrogate

Failure = Literal["rejected", "compile_failed", "mismatch", "crashed", "timed_out"]
"""A program that did not pass: the outcome's name."""

FAILURE_FACTOR = 3.0
"""A program that fails makes its neighbours look this much slower than they were expected to be."""

_DENSITY = 1 / math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class TuningLimits:
    """When a tuner has had enough."""

    candidates: int = 96
    """Programs that it may ask for."""
    patience: int = 32
    """Measurements in a row without an improvement by `worthwhile` after which it stops..."""
    worthwhile: float = 0.01
    """...that is, by this share of the best time."""
    hope: float = 0.05
    """It stops, too, when no prospect has a larger chance than this to be better by `worthwhile`..."""
    least: int = 16
    """...but not before it has been told of this many: a cost model may be sure and wrong."""


def anything(_: str) -> bool:
    """No text is left out."""
    return True


class Tuner:
    """Proposes programs of a grid and learns from their times."""

    def __init__(
        self,
        grid: Choices,
        cost: CostModel,
        limits: TuningLimits | None = None,
        allows: Callable[[str], bool] = anything,
    ) -> None:
        """`allows`: whether a program's text may be proposed at all."""
        self._grid = grid
        self._allows = allows
        self._limits = limits or TuningLimits()
        self._results: dict[int, float | Failure] = {}
        self._index_of: dict[str, int] = {}
        self._pending: dict[int, None] = {}
        self._best = math.inf
        self._num_fruitless = 0
        self.rely_on(cost)

    @property
    def num_asked(self) -> int:
        """Programs handed out so far."""
        return len(self._index_of)

    @property
    def best_us(self) -> float | None:
        """The best time told so far."""
        times = [result for result in self._results.values() if not isinstance(result, str)]
        return min(times, default=None)

    @property
    def done(self) -> bool:
        """Whether asking for more is not worth it, as far as is known now."""
        if self.num_asked >= self._limits.candidates or self._taken.all():
            return True
        if math.isinf(self._best):
            return False
        if self._num_fruitless >= self._limits.patience:
            return True
        return len(self._results) >= self._limits.least and self._chance() < self._limits.hope

    def next_batch(self, size: int) -> list[FamilyInstance]:
        """At most `size` programs that were not asked for before; none when it is done."""
        batch: list[FamilyInstance] = []
        if self.done:
            return batch
        surrogate = self._surrogate.copy()
        for index in self._pending:
            surrogate.suppose(index)
        while len(batch) < size and self.num_asked < self._limits.candidates and not self._taken.all():
            index = self._most_promising(surrogate)
            self._taken[index] = True
            instance = self._grid.instance(index)
            if instance.program in self._index_of or not self._allows(instance.program):
                continue
            self._index_of[instance.program] = index
            self._pending[index] = None
            surrogate.suppose(index)
            batch.append(instance)
        return batch

    def tell(self, instance: FamilyInstance, result: float | Failure) -> None:
        """What became of a program that was handed out: its time in microseconds, or how it failed.

        The first word counts; raises KeyError for a program that was not handed out.
        """
        index = self._index_of[instance.program]
        if index not in self._pending:
            return
        del self._pending[index]
        self._results[index] = result
        self._learn(index, result)
        if isinstance(result, str):
            self._num_fruitless += 1
            return
        log_time = math.log(result)
        gained = log_time < self._best + math.log1p(-self._limits.worthwhile)
        self._num_fruitless = 0 if gained else self._num_fruitless + 1
        self._best = min(self._best, log_time)

    def rely_on(self, cost: CostModel) -> None:
        """Go on with another cost model and what was measured: the device turned out to be another."""
        log_costs = cost.log_costs(self._grid)
        self._surrogate = Surrogate(self._grid, log_costs, cost.doubt, cost.seldom_seen)
        self._taken = _left_out(self._grid, log_costs, cost.left_out)
        self._taken[list(self._index_of.values())] = True
        for index, result in self._results.items():
            self._learn(index, result)

    def _learn(self, index: int, result: float | Failure) -> None:
        expected = float(self._surrogate.mean[index])
        log_time = expected + math.log(FAILURE_FACTOR) if isinstance(result, str) else math.log(result)
        self._surrogate.observe(index, log_time)

    def _most_promising(self, surrogate: Surrogate) -> int:
        """The prospect with the largest expected improvement; at first, the one expected to be the fastest."""
        free = np.flatnonzero(~self._taken)
        best = min(self._best, *(float(surrogate.mean[index]) for index in self._pending), math.inf)
        mean = surrogate.mean[free]
        if math.isinf(best):
            return int(free[np.argmin(mean)])
        return int(free[np.argmax(expected_improvement(mean, surrogate.deviation[free], best))])

    def _chance(self) -> float:
        """The largest chance that any one prospect is better than the best by what is worthwhile."""
        free = ~self._taken
        aim = self._best + math.log1p(-self._limits.worthwhile)
        surest = (aim - self._surrogate.mean[free]) / self._surrogate.deviation[free]
        return float(ndtr(surest.max()))


def _left_out(grid: Choices, log_costs: FloatArray, families: Collection[str]) -> BoolArray:
    """Prospects of families that were the fastest of nothing, shape [prospects]; none where nothing else would stay.

    A family is let in where the cost model expects it to win: on a matrix unlike those that it was trained on.
    """
    names = np.array(grid.families)
    left_out = np.isin(names, list(families))
    if left_out.all():
        return np.zeros_like(left_out)
    promising = names[left_out & (log_costs < log_costs[~left_out].min())]
    return left_out & ~np.isin(names, promising)


def expected_improvement(mean: FloatArray, deviation: FloatArray, best: float) -> FloatArray:
    """Of normal variables that are to be small over a best value (Jones et al. 1998, equation 15)."""
    gain = best - mean
    score = gain / deviation
    return np.asarray(gain * ndtr(score) + deviation * _DENSITY * np.exp(-0.5 * score**2), np.float64)
