"""What a prospect is expected to take, before anything of the matrix was measured."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sparsesmith.tuning.grid import Choices, FloatArray


@dataclass(frozen=True)
class Doubt:
    """How far a cost model is off, as standard deviations of the natural logarithm of a time."""

    workload: float
    """The same for all prospects of a workload; does not change their order."""
    family: float
    """The same for all prospects of a family."""
    parameters: float
    """What neighbours in a family share; fades with the distance of their parameters."""
    noise: float
    """What no neighbour tells."""
    reach: float
    """Distance, in doublings of one parameter, at which neighbours still tell most."""


class CostModel(Protocol):
    """Ranks the prospects of a workload."""

    @property
    def name(self) -> str:
        """For people: `cost model of NVIDIA H200`."""
        ...

    @property
    def doubt(self) -> Doubt: ...

    @property
    def left_out(self) -> frozenset[str]:
        """Families that are not worth a try on this device: never the fastest of anything that was measured."""
        ...

    @property
    def seldom_seen(self) -> frozenset[str]:
        """Families of which little was measured, so that `doubt` says too little of them."""
        ...

    @property
    def never_seen(self) -> frozenset[str]:
        """Of those, families that it was shown nothing of, as they are younger: not to be chosen without measuring."""
        ...

    def log_costs(self, grid: Choices) -> FloatArray:
        """Natural logarithm of the expected time but for a constant of the workload, shape [prospects]."""
        ...


class EvenCost:
    """The same for every prospect: of a program that somebody wrote nothing is known."""

    name = "no model"
    left_out = frozenset[str]()
    seldom_seen = frozenset[str]()
    never_seen = frozenset[str]()
    doubt = Doubt(workload=10.0, family=0.0, parameters=0.4, noise=0.03, reach=2.0)

    def log_costs(self, grid: Choices) -> FloatArray:
        return np.zeros(len(grid.entries))


class AnalyticCost:
    """The estimates that come with the prospects: launches, chains of loads, bytes, instructions. For any device."""

    name = "analytic estimate"
    left_out = frozenset[str]()
    seldom_seen = frozenset[str]()
    never_seen = frozenset[str]()
    doubt = Doubt(workload=1.0, family=0.35, parameters=0.2, noise=0.05, reach=2.0)

    def log_costs(self, grid: Choices) -> FloatArray:
        return np.log(grid.estimates())
