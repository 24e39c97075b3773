"""Everything that the families offer for one workload."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sparsesmith.families.estimates.cost import Work
from sparsesmith.families.proposal import FamilyProspect, prospects_of, work_of
from sparsesmith.formats.format import ParameterValue
from sparsesmith.matrix.pattern import Pattern
from sparsesmith_proto.message import ElementType, Operation

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

SORT_EVERYTHING = 2.0**20
"""What sigma=0 stands for, on the scale of the other values of sigma."""


@dataclass(frozen=True, eq=False)
class Grid:
    """A workload and its prospects, family by family; hundreds to thousands."""

    work: Work
    operation: Operation
    element_type: ElementType
    prospects: Sequence[FamilyProspect]

    @property
    def families(self) -> list[str]:
        return [entry.family.name for entry in self.prospects]

    def family_numbers(self) -> IntArray:
        """Equal for prospects of one family, shape [prospects]."""
        numbers: dict[str, int] = {}
        return np.array([numbers.setdefault(name, len(numbers)) for name in self.families], np.int64)

    def subset(self, indices: Sequence[int]) -> "Grid":
        """Some of the prospects."""
        return replace(self, prospects=[self.prospects[index] for index in indices])

    def estimates(self) -> FloatArray:
        """Analytic estimates in microseconds, shape [prospects]."""
        return np.array([entry.estimated_us for entry in self.prospects], np.float64)

    def coordinates(self) -> FloatArray:
        """Parameters as coordinates, shape [prospects, axes]: a step to the double or to another word has length 1."""
        axes: dict[str, int] = {}
        words = np.sqrt(0.5)
        entries: list[list[tuple[int, float]]] = []
        for prospect in self.prospects:
            row = []
            for name, value in prospect.parameters.items():
                if isinstance(value, str):
                    row.append((axes.setdefault(f"{name}={value}", len(axes)), float(words)))
                else:
                    row.append((axes.setdefault(name, len(axes)), scaled(name, value)))
            entries.append(row)
        coordinates = np.zeros((len(entries), len(axes)))
        for index, row in enumerate(entries):
            for axis, place in row:
                coordinates[index, axis] = place
        return coordinates


def scaled(name: str, value: ParameterValue) -> float:
    """A number of a parameter on a scale of doublings."""
    assert isinstance(value, int)
    return float(np.log2(SORT_EVERYTHING if name == "sigma" and value == 0 else max(value, 0.5)))


def grid_of(pattern: Pattern, operation: Operation, element_type: ElementType, num_dense_cols: int = 1) -> Grid:
    """All prospects of a workload; 10 to 60 ms up to 1e6 nonzeros."""
    work = work_of(pattern, element_type, num_dense_cols)
    return Grid(work, operation, element_type, prospects_of(work, operation, element_type))
