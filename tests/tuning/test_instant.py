"""What is chosen at once: the first of what may be first, by the model, among likely prospects; the same each time."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measure.instant import named_patterns
from sparsesmith.families import FAMILIES
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith.tuning.instant import LIKELY, NEVER_FIRST, SLOW_TO_RANK, choices, short_grid
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.kernel import Workload
from tests.tuning.chosen import RECORD, chosen

COST = CostModels(Path(__file__).parents[2] / "models" / "cost-h200").on("NVIDIA H200")
PATTERNS = named_patterns(3e4)


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
    assert chosen(COST) == recorded
