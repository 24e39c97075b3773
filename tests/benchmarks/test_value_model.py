"""Two models that rank the same programs: one reads texts, one knows families."""

from collections.abc import Mapping

import numpy as np

from benchmarks.learning.value_model import compared, pairs_of
from benchmarks.measure.measured import MatrixEntry, Measured
from benchmarks.tuning.sweep import Plan
from services.trainer.offline.prompt_pool import Device
from services.trainer.offline.targets import TargetRule, WorkloadKey, workload_targets
from services.trainer.offline.value_training import FloatArray, judged
from sparsesmith.tuning.columns import all_words, columns_of
from sparsesmith.tuning.grid import Grid, grid_of
from tests.families import golden

KEY = WorkloadKey("points", "spmv", "float32", 1)


def make_measured(grid: Grid, times_us: FloatArray) -> Measured:
    count = len(grid.prospects)
    entry = MatrixEntry("points", "mesh", "validation", 100)
    columns = columns_of(grid, all_words())
    return Measured(entry, Plan("spmv", "float32", 1, 0), grid, columns, times_us, np.full(count, np.nan), count)


def test_both_models_rank_the_programs_that_both_know() -> None:
    """The value model was not asked of one of them, and of one more that no grid has."""
    whole = grid_of(golden.PATTERNS["five points"](), "spmv", "float32", 1)
    grid = whole.subset(list(range(0, 240, 20)))
    times_us = np.arange(2.0, 2.0 + len(grid.prospects), dtype=np.float64)
    records = [
        {**vars(KEY), "program": f"opened {index}", "plain": grid.instance(index).program, "median_us": us}
        for index, us in enumerate(times_us)
    ]
    (workload,) = workload_targets([*records[1:], {**vars(KEY), "program": "other", "median_us": 9.5}], TargetRule())
    known = judged(workload, Device())

    def backwards(columns: Mapping[str, FloatArray]) -> FloatArray:
        return -np.arange(len(columns["family"]), dtype=np.float64)

    told = compared([make_measured(grid, times_us)], [workload], {KEY: (known, known.log_times + 3)}, backwards)
    assert {name: each["programs"] for name, each in told.items()} == dict.fromkeys(told, len(times_us) - 1)
    assert round(told["value model"]["spearman"], 6) == 1
    assert round(told["cost model"]["spearman"], 6) == -1
    assert set(told) == {"value model", "cost model", "estimate"}


def test_workloads_of_few_programs_have_no_rank_correlation() -> None:
    (workload,) = workload_targets([{**vars(KEY), "program": "one", "median_us": 2.0}], TargetRule())
    known = judged(workload, Device())
    assert pairs_of([(known, known.log_times)]) == []
