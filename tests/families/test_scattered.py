"""Families for scattered columns are proposed where x is read at random, and only there."""

import numpy as np
import pytest

from sparsesmith.elements import ELEMENTS
from sparsesmith.families import FAMILIES
from sparsesmith.families.estimates.cost import Work
from sparsesmith.families.estimates.scatter import sectors_a_nonzero
from sparsesmith.families.estimates.statistics import PatternStatistics
from sparsesmith.formats.format import ParameterValue
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.program.program import parse_program
from sparsesmith_proto.message import ElementType


def uniform(extent: int = 300_000, nnz: int = 2_400_000) -> Pattern:
    generator = np.random.default_rng(1)
    return pattern_from_indices(extent, extent, generator.integers(0, extent, nnz), generator.integers(0, extent, nnz))


def with_popular_columns(extent: int = 300_000, nnz: int = 1_000_000) -> Pattern:
    generator = np.random.default_rng(2)
    ranks = np.minimum(generator.pareto(1.1, nnz) * extent / 500, extent - 1).astype(np.int64)
    return pattern_from_indices(
        extent, extent, generator.integers(0, extent, nnz), generator.permutation(extent)[ranks]
    )


def band(extent: int = 100_000) -> Pattern:
    rows = np.repeat(np.arange(extent), 9)
    return pattern_from_indices(extent, extent, rows, np.clip(rows + np.tile(np.arange(-4, 5), extent), 0, extent - 1))


def choices(family: str, pattern: Pattern, element_type: ElementType = "float32") -> list[dict[str, ParameterValue]]:
    work = Work(PatternStatistics(pattern), ELEMENTS[element_type].num_bytes, 1)
    prospects = sorted(FAMILIES[family].prospects(work), key=lambda prospect: prospect.estimated_us)
    return [prospect.parameters for prospect in prospects]


def test_a_sector_of_x_serves_one_nonzero_where_columns_are_random_and_many_in_a_band() -> None:
    assert sectors_a_nonzero(uniform(), 4) > 0.9
    assert sectors_a_nonzero(band(), 4) < 0.1


def test_columns_without_favourites_get_panels_but_no_hubs() -> None:
    assert choices("panels", uniform())
    assert not choices("hubs", uniform(3_000_000))


def test_popular_columns_get_hubs() -> None:
    assert choices("hubs", with_popular_columns())


@pytest.mark.parametrize("family", ["panels", "hubs"])
def test_a_band_gets_neither(family: str) -> None:
    assert not choices(family, band())


@pytest.mark.parametrize("element_type", ["float32", "float64"])
@pytest.mark.parametrize("family", ["panels", "hubs"])
def test_every_prospect_fits_shared_memory(family: str, element_type: ElementType) -> None:
    pattern = with_popular_columns()
    layouts = {}
    for parameters in choices(family, pattern, element_type)[:12]:
        every = {name: spec.default for name, spec in FAMILIES[family].parameters.items()} | parameters
        program = parse_program(FAMILIES[family].render(every, element_type), "spmv", element_type)
        key = tuple(program.parameters.items())
        if key not in layouts:
            layouts[key] = program.format.build(pattern, program.parameters).sizes
        sizes = {"num_rows": pattern.num_rows, "num_cols": pattern.num_cols, "nnz": pattern.nnz, **layouts[key]}
        for launch in program.launches:
            assert launch.resolve({**sizes, "num_sms": 132, "num_dense_cols": 1}).shared_bytes <= 232448


def test_panels_are_given_no_more_bins_than_the_nonzeros_fill() -> None:
    for parameters in choices("panels", uniform(nnz=400_000)):
        assert int(parameters["bins"]) * int(parameters["rounds"]) <= 400_000 / 32
