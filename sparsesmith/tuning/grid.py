"""Everything that the families offer for one workload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from sparsesmith.families import FamilyInstance
from sparsesmith.families.catalogue import TASK_FAMILIES
from sparsesmith.families.estimates.cost import Work
from sparsesmith.families.knobs import family_of, prospects_of_program, task_family_of
from sparsesmith.families.proposal import FamilyProspect, Proposed, prospects_of, work_of
from sparsesmith.families.task import TaskFamily, first_programs
from sparsesmith.formats.format import ParameterValue
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith_proto.message import ElementType, Operation
from sparsesmith_proto.words import ReorderOption

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

SORT_EVERYTHING = 2.0**20
"""What sigma=0 stands for, on the scale of the other values of sigma."""


class Named(Protocol):
    """A family."""

    @property
    def name(self) -> str: ...


class Entry(Protocol):
    """A family with parameters worth trying; its program is not written yet."""

    @property
    def family(self) -> Named: ...

    @property
    def parameters(self) -> Mapping[str, ParameterValue]: ...

    @property
    def estimated_us(self) -> float: ...


class Choices:
    """What there is to choose among for one problem, family by family; hundreds to thousands."""

    @property
    def entries(self) -> Sequence[Entry]:
        raise NotImplementedError

    def instance(self, index: int) -> FamilyInstance:
        """An entry with its program written."""
        raise NotImplementedError

    @property
    def families(self) -> list[str]:
        return [entry.family.name for entry in self.entries]

    def family_numbers(self) -> IntArray:
        """Equal for prospects of one family, shape [prospects]."""
        numbers: dict[str, int] = {}
        return np.array([numbers.setdefault(name, len(numbers)) for name in self.families], np.int64)

    def estimates(self) -> FloatArray:
        """Analytic estimates in microseconds, shape [prospects]."""
        return np.array([entry.estimated_us for entry in self.entries], np.float64)

    def coordinates(self) -> FloatArray:
        """Parameters as coordinates, shape [prospects, axes]: a step to the double or to another word has length 1."""
        axes: dict[str, int] = {}
        words = np.sqrt(0.5)
        entries: list[list[tuple[int, float]]] = []
        for prospect in self.entries:
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


@dataclass(frozen=True, eq=False)
class Grid(Choices):
    """A workload and its prospects."""

    work: Work
    operation: Operation
    element_type: ElementType
    prospects: Sequence[FamilyProspect]

    @property
    def entries(self) -> Sequence[Entry]:
        return self.prospects

    def instance(self, index: int) -> FamilyInstance:
        return self.prospects[index].instance(self.element_type, self.work.num_dense_cols)

    def subset(self, indices: Sequence[int]) -> Self:
        """Some of the prospects."""
        return replace(self, prospects=[self.prospects[index] for index in indices])


@dataclass(frozen=True, eq=False)
class TaskGrid(Choices):
    """A task and its prospects."""

    problem: Problem
    prospects: Sequence[Proposed[TaskFamily]]

    @property
    def entries(self) -> Sequence[Entry]:
        return self.prospects

    def instance(self, index: int) -> FamilyInstance:
        entry = self.prospects[index]
        return entry.family.instance(entry.parameters, self.problem)


@lru_cache(1 << 14)
def scaled(name: str, value: ParameterValue) -> float:
    """A number of a parameter on a scale of doublings."""
    assert isinstance(value, int)
    return float(np.log2(SORT_EVERYTHING if name == "sigma" and value == 0 else max(value, 0.5)))


def grid_of(
    pattern: Pattern,
    operation: Operation,
    element_type: ElementType,
    num_dense_cols: int = 1,
    reorder: ReorderOption = "keep",
) -> Grid:
    """All prospects of a workload; 10 to 60 ms up to 1e6 nonzeros, longer where an order of rows and columns is looked
    for."""
    work = work_of(pattern, element_type, num_dense_cols)
    return Grid(work, operation, element_type, prospects_of(work, operation, element_type, reorder))


def grid_of_problem(problem: Problem, reorder: ReorderOption = "keep") -> Choices:
    """All prospects of a problem; of a task, its first programs among them."""
    workload = problem.workload
    if problem.matrix is not None:
        named = workload.operation, workload.element_type, workload.num_dense_cols
        return grid_of(problem.matrix, *named, reorder)
    own = [family for family in TASK_FAMILIES.values() if family.operation == workload.operation]
    found = [
        Proposed(family, prospect)
        for family in (*first_programs(problem.operation, problem.element_type), *own)
        for prospect in family.prospects(problem)
        if family.accepts(prospect.parameters, problem)
    ]
    return TaskGrid(problem, found)


def grid_of_program(text: str, problem: Problem) -> Choices:
    """The settings of a program's knobs, on a problem. Raises InvalidProgram for knobs that are malformed."""
    workload = problem.workload
    if problem.matrix is None:
        family = task_family_of(text, workload.operation)
        return TaskGrid(problem, [Proposed(family, prospect) for prospect in family.prospects(problem)])
    work = work_of(problem.matrix, workload.element_type, workload.num_dense_cols)
    prospects = prospects_of_program(family_of(text, workload.operation), work)
    return Grid(work, workload.operation, workload.element_type, prospects)
