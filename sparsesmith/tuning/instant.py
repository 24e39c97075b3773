"""Programs for a workload in milliseconds, without a measurement: the cost model's first choices among few.

The grid of a workload has thousands of prospects, and ranking them takes longer than a kernel that is wanted at once
may. Here families that take long to rank are left out, each other one enters its few least estimates, and single
nonzeros are looked at in fewer windows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from sparsesmith.errors import InvalidOption
from sparsesmith.families import FamilyInstance
from sparsesmith.families.proposal import shortlist, work_of
from sparsesmith.operations import Problem
from sparsesmith.tuning.cost import CostModel
from sparsesmith.tuning.grid import Choices, Grid, grid_of_problem
from sparsesmith.tuning.tuner import anything
from sparsesmith_proto.kernel import Candidate

SLOW_TO_RANK = frozenset({"hubs", "hyb", "hyb_segmented", "panels", "spmm_hyb"})
"""Families whose estimates look at every nonzero, or try many splits."""
NEVER_FIRST = frozenset({"csr_vector", "csr_adaptive", "dia_batched", "dia_literal_wide", "spmm_bsr", "spmm_merge"})
"""Families that the cost model of an H200 put first for none of 503 matrices, in float32 and float64 and with 32 dense
columns; at 1 % to 10 % behind the first in the best case."""
LIKELY = 2.0
"""Times the least estimate, beyond which a prospect is not ranked: of those matrices the first was at most at 1.6."""
A_FAMILY = 12
"""Prospects of a family that are ranked."""
NUM_WINDOWS = 16
"""Of nonzeros, where a search looks at 64."""


@dataclass(frozen=True)
class Choice:
    """A program, and what it is expected to take."""

    instance: FamilyInstance
    estimated_us: float
    """By the analytic estimate of its family."""


def choices(problem: Problem, cost: CostModel, allows: Callable[[str], bool] = anything) -> Iterator[Choice]:
    """Programs that the model expects to be the fastest, best first; of families one after the other, as what cannot
    be built of one program cannot be built of its neighbours. `allows`: whether a text may be chosen."""
    grid = short_grid(problem, cost)
    log_costs = cost.log_costs(grid)
    seen: set[str] = set()
    for index in np.argsort(log_costs, kind="stable").tolist():
        entry = grid.entries[index]
        if entry.family.name in seen:
            continue
        instance = grid.instance(index)
        if allows(instance.program):
            seen.add(entry.family.name)
            yield Choice(instance, entry.estimated_us)


def filled_in(candidate: Candidate, instance: FamilyInstance) -> Candidate:
    """What an evaluator would make of the open text of a choice: its family knows the numbers, and where a kernel is
    wanted at once the compiler would wait for them."""
    return candidate.model_copy(update={"program": instance.program, "written": instance.open_program})


def short_grid(problem: Problem, cost: CostModel) -> Choices:
    """What is chosen among. Raises InvalidOption where no family writes programs of the workload."""
    workload, pattern = problem.workload, problem.matrix
    if pattern is None:
        return grid_of_problem(problem)
    work = work_of(pattern, workload.element_type, workload.num_dense_cols, NUM_WINDOWS)
    kind = workload.operation, workload.element_type
    prospects = shortlist(work, *kind, SLOW_TO_RANK | NEVER_FIRST | cost.left_out | cost.never_seen, A_FAMILY)
    prospects = prospects or shortlist(work, *kind, (), A_FAMILY)
    bound_us = LIKELY * min((each.estimated_us for each in prospects), default=0.0)
    prospects = [each for each in prospects if each.estimated_us <= bound_us]
    if not prospects:
        raise InvalidOption(
            f"no family writes programs of {workload.operation} {workload.element_type}",
            field="operation",
            value=workload.operation,
        )
    return Grid(work, workload.operation, workload.element_type, prospects)
