"""What is chosen at once: the first of what may be first, by the model, among likely prospects; the same each time."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.measure.instant import named_patterns
from sparsesmith.families import FAMILIES
from sparsesmith.families.proposal import FamilyProspect, prospects_of, work_of
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith.tuning.cost import CostModel
from sparsesmith.tuning.grid import Grid
from sparsesmith.tuning.instant import (
    A_FAMILY,
    LIKELY,
    NEVER_FIRST,
    NUM_WINDOWS,
    SLOW_TO_RANK,
    choices,
    short_grid,
)
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.kernel import Workload
from tests.tuning.chosen import OTHERS, RECORD, WORKLOADS, chosen, patterns

MODELS = CostModels(Path(__file__).parents[2] / "models" / "cost-h200")
COST = MODELS.on("NVIDIA H200")
PATTERNS = named_patterns(3e4)
AWKWARD = {name: each for name, each in patterns().items() if not name.endswith("000")}


def make_problem(pattern: Pattern, **workload: object) -> Problem:
    fresh = Pattern(pattern.num_rows, pattern.num_cols, pattern.row_offsets, pattern.col_indices)
    given = {"operation": "spmv", "element_type": "float32", **workload}
    return Problem(Workload.model_validate({"pattern": fresh.digest, **given}), fresh)


def test_families_that_are_left_out_are_families() -> None:
    assert FAMILIES.keys() >= NEVER_FIRST | SLOW_TO_RANK


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("workload", [{}, {"operation": "spmm", "num_dense_cols": 32}], ids=["spmv", "spmm"])
def test_a_choice_is_the_model_s_first_of_what_is_likely(name: str, workload: dict[str, object]) -> None:
    problem = make_problem(PATTERNS[name], **workload)
    grid = short_grid(problem, COST)
    estimates = grid.estimates()
    assert estimates.max() <= LIKELY * estimates.min()
    assert not set(grid.families) & NEVER_FIRST
    found = choices(problem, COST)
    first, second = next(found), next(found)
    assert first.instance == grid.instance(int(np.argmin(COST.log_costs(grid))))
    assert first.instance.family != second.instance.family
    again = next(choices(make_problem(PATTERNS[name], **workload), COST))
    assert again.instance == first.instance


def test_what_is_chosen_is_what_was_recorded() -> None:
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    assert chosen(MODELS) == recorded


@pytest.mark.parametrize("label", [*WORKLOADS, *OTHERS])
def test_a_choice_is_that_of_the_plain_way(label: str) -> None:
    """All prospects of a search, families and starts left out one by one, the least estimates of what remains."""
    workload = {**WORKLOADS, **OTHERS}[label]
    cost = MODELS.on("NVIDIA H200", workload["operation"])
    for name, pattern in {**PATTERNS, **AWKWARD}.items():
        short = short_grid(make_problem(pattern, **workload), cost)
        assert isinstance(short, Grid)
        plain = plain_grid(pattern, workload, cost)
        assert [entry.family.name for entry in plain.prospects] == short.families, name
        assert [entry.parameters for entry in plain.prospects] == [entry.parameters for entry in short.entries], name
        assert plain.estimates() == pytest.approx(short.estimates(), rel=1e-12), name
        first = next(choices(make_problem(pattern, **workload), cost))
        assert first.instance == plain.instance(int(np.argmin(cost.log_costs(plain)))), name


def plain_grid(pattern: Pattern, workload: Mapping[str, Any], cost: CostModel) -> Grid:
    kind = workload["operation"], workload["element_type"]
    work = work_of(pattern, kind[1], workload.get("num_dense_cols", 1), NUM_WINDOWS)
    everything = [each for each in prospects_of(work, *kind) if each.parameters.get("dependency") != "full"]
    left_out = SLOW_TO_RANK | NEVER_FIRST | cost.left_out | cost.never_seen
    found = [each for each in everything if each.family.name not in left_out] or everything
    by_family: dict[str, list[FamilyProspect]] = {}
    for each in found:
        by_family.setdefault(each.family.name, []).append(each)
    least = [
        each
        for of_family in by_family.values()
        for each in sorted(of_family, key=lambda each: each.estimated_us)[:A_FAMILY]
    ]
    bound_us = LIKELY * min(each.estimated_us for each in least)
    return Grid(work, *kind, [each for each in least if each.estimated_us <= bound_us])
