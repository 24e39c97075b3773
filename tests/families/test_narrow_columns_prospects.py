"""Narrow columns are proposed where the pattern fits them, and nowhere else."""

import numpy as np
import pytest
import scipy.sparse as sp

from sparsesmith.families import FAMILIES
from sparsesmith.families.estimates.cost import Work
from sparsesmith.families.estimates.statistics import PatternStatistics
from sparsesmith.formats.format import ParameterValue
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices, pattern_from_scipy
from sparsesmith.program.program import parse_program

SLICED = ("sell", "sell_lanes", "sell_wide")
ROWS = ("csr_vector", "csr_vector_wide")


def grid(side: int = 400) -> Pattern:
    line = sp.diags([1.0, 1.0, 1.0], [-1, 0, 1], shape=(side, side))
    return pattern_from_scipy((sp.kron(line, sp.identity(side)) + sp.kron(sp.identity(side), line)).tocsr())


def banded(rows: int = 90_000, offsets: int = 20) -> Pattern:
    return pattern_from_scipy(sp.diags([1.0] * offsets, list(range(offsets)), shape=(rows, rows + offsets)))


def near_one_diagonal_of_many(rows: int = 40_000, reach: int = 3000) -> Pattern:
    generator = np.random.default_rng(1)
    listed = np.repeat(np.arange(rows), 17)
    return pattern_from_indices(rows, 300_000, listed, listed * 7 + generator.integers(0, reach, listed.size))


def scattered(rows: int = 40_000) -> Pattern:
    listed = np.repeat(np.arange(rows), 17)
    return pattern_from_indices(rows, 900_000, listed, np.random.default_rng(2).integers(0, 900_000, listed.size))


def proposed(pattern: Pattern, family: str) -> set[ParameterValue]:
    """Values of `index`; every program that names one is built."""
    found: dict[ParameterValue, dict[str, ParameterValue]] = {}
    for prospect in FAMILIES[family].prospects(Work(PatternStatistics(pattern), 4, 1)):
        defaults = {name: spec.default for name, spec in FAMILIES[family].parameters.items()}
        choice = {**defaults, **prospect.parameters}
        if FAMILIES[family].accepts(choice, "float32"):
            found.setdefault(choice["index"], choice)
    for choice in found.values():
        program = parse_program(FAMILIES[family].render(choice, "float32"), "spmv", "float32")
        program.format.build(pattern, program.parameters)
    return set(found)


@pytest.mark.parametrize("family", SLICED)
def test_a_stencil_s_slots_are_counted_in_eight_bits_and_scattered_columns_are_not(family: str) -> None:
    assert "u8" in proposed(grid(), family)
    assert not {"u8", "u16_slot"} & proposed(scattered(), family)
    assert "u8" not in proposed(grid(40), family), "a small matrix waits for latency"


def test_slots_reach_where_slices_do_not() -> None:
    assert proposed(grid(700), "sell") == {"u8", "u16", "i32"}
    rows = np.repeat(np.arange(60_000), 5)
    columns = rows + np.tile([0, 90_000, 180_000, 270_000, 360_000], 60_000)
    jittered = columns + np.random.default_rng(3).integers(0, 2000, rows.size)
    assert proposed(pattern_from_indices(60_000, 430_000, rows, jittered), "sell") == {"u16_slot", "i32"}


@pytest.mark.parametrize("family", ROWS)
def test_rows_are_counted_from_their_first_column_where_that_reaches(family: str) -> None:
    assert proposed(banded(), family) == {"u8", "u16_row", "i32"}
    assert proposed(near_one_diagonal_of_many(), family) == {"u16_row", "i32"}
    assert proposed(scattered(), family) == {"i32"}


def test_segments_are_counted_from_their_smallest_column_where_that_reaches() -> None:
    assert proposed(banded(), "csr_merge") == {"u8", "u16", "i32"}
    assert proposed(near_one_diagonal_of_many(), "csr_merge") == {"u16", "i32"}
    assert proposed(scattered(), "csr_merge") == {"i32"}
    few_columns = pattern_from_indices(4000, 60_000, np.arange(4000), np.arange(4000) * 15)
    assert proposed(few_columns, "csr_merge") == {"u16", "i32"}
