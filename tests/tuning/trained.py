"""A small learned cost model: everything as estimated, but csr_scalar twice as slow."""

import numpy as np

from sparsesmith.tuning.boosted import BoostedCost, Description, Table, described, train
from sparsesmith.tuning.columns import all_words, columns_of
from sparsesmith.tuning.cost import Doubt
from sparsesmith.tuning.grid import Grid
from tests.tuning.grids import make_grid, make_pattern

WORDS = all_words()


def scalar_is_twice_as_slow(grid: Grid) -> Table:
    slow = np.where(np.array(grid.families) == "csr_scalar", np.log(2.0), 0.0)
    return Table(columns_of(grid, WORDS), np.log(grid.estimates()) + slow)


def make_model(device: str = "NVIDIA H200") -> BoostedCost:
    tables = [
        scalar_is_twice_as_slow(make_grid("csr_scalar", "csr_vector", pattern=make_pattern(rows)))
        for rows in (300, 500, 800)
    ]
    names = sorted(tables[0].columns)
    description = Description(
        device=device,
        columns=names,
        words=WORDS,
        doubt=described(Doubt(1.0, 0.1, 0.1, 0.02, 2.0)),
        num_programs=1,
        num_workloads=1,
        num_patterns=1,
        left_out=[],
        seldom_seen=[],
        sources=[],
    )
    return BoostedCost(train(tables, names), description)
