"""Grids for tests: of recorded programs, and small ones of real families."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from sparsesmith.families import FamilyInstance
from sparsesmith.matrix.files import MatrixLimits, read_matrix
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.tuning.cost import Doubt
from sparsesmith.tuning.grid import Choices, FloatArray, Grid, grid_of
from sparsesmith.tuning.tuner import Tuner

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).with_name("recorded.json")


def make_pattern(rows: int = 600, density: float = 0.01) -> Pattern:
    return pattern_from_scipy(sp.random(rows, rows, density, format="csr", rng=np.random.default_rng(5)))


def make_grid(*families: str, pattern: Pattern | None = None) -> Grid:
    """The prospects of some families; of all, where none is named."""
    grid = grid_of(make_pattern() if pattern is None else pattern, "spmv", "float32")
    return grid.subset([index for index, name in enumerate(grid.families) if not families or name in families])


def recorded_grid(matrix: str) -> tuple[Grid, FloatArray]:
    """What was measured of an example matrix on an H200 (`benchmarks.tuning.sweep`), and microseconds of each."""
    path = ROOT / "examples" / f"{matrix}.mtx"
    grid = grid_of(read_matrix(path, path.name, MatrixLimits())[0], "spmv", "float32")
    records = json.loads(RECORDED.read_text(encoding="utf-8"))["matrices"][matrix]
    times: dict[int, float] = {}
    for record in records:
        for index, prospect in enumerate(grid.prospects):
            named = {name: prospect.parameters.get(name) for name in record["parameters"]}
            if prospect.family.name == record["family"] and named == record["parameters"]:
                times.setdefault(index, record["us"])
    return grid.subset(list(times)), np.array(list(times.values()))


class KnownCost:
    """A cost model that says what it is told to."""

    name = "known costs"

    def __init__(
        self, log_costs: FloatArray, doubt: Doubt | None = None, left_out: frozenset[str] = frozenset()
    ) -> None:
        self._log_costs = log_costs
        self.left_out = left_out
        self.seldom_seen = frozenset[str]()
        self.never_seen = frozenset[str]()
        self.doubt = doubt or Doubt(workload=1.0, family=0.3, parameters=0.2, noise=0.02, reach=2.0)

    def log_costs(self, grid: Choices) -> FloatArray:
        return self._log_costs


def run(tuner: Tuner, time_us: Callable[[FamilyInstance], float], batch: int = 4) -> list[FamilyInstance]:
    """Everything a tuner asks for until it is done."""
    asked: list[FamilyInstance] = []
    while instances := tuner.next_batch(batch):
        asked += instances
        for instance in instances:
            tuner.tell(instance, time_us(instance))
    return asked


def times_of(grid: Grid, times_us: FloatArray) -> Callable[[FamilyInstance], float]:
    """Looks up an instance's time."""
    by_program = {
        prospect.instance(grid.element_type, 1).program: float(us)
        for prospect, us in zip(grid.prospects, times_us, strict=True)
    }
    return lambda instance: by_program[instance.program]
