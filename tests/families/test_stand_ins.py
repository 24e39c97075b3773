"""Programs whose text is the same for every matrix, in the place of those that hold numbers of one."""

import numpy as np
import pytest

from sparsesmith.families.proposal import FamilyProspect, prospects_of, work_of
from sparsesmith.families.stand_ins import common_texts, stand_in
from sparsesmith.formats.row_bins import MAX_SIZED_BINS
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.operations import Problem
from sparsesmith.program.program import parse_program
from sparsesmith.tuning.cost import AnalyticCost
from sparsesmith.tuning.instant import choices
from sparsesmith_proto.kernel import Workload

LITERAL = ("row_bins", "ell_fixed")


def rows_of_lengths(seed: int, num_rows: int, longest: int) -> Pattern:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, longest, num_rows)
    rows = np.repeat(np.arange(num_rows), lengths)
    within = np.arange(rows.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return pattern_from_indices(num_rows, 3000, rows, within * 7 + rows % 5)


PATTERNS = (rows_of_lengths(1, 300, 20), rows_of_lengths(2, 2000, 23), rows_of_lengths(3, 900, 18))


def prospects(pattern: Pattern, family: str) -> list[FamilyProspect]:
    listed = prospects_of(work_of(pattern, "float32"), "spmv", "float32")
    return [each for each in listed if each.family.name == family][:12]


def source(entry: FamilyProspect) -> str:
    """What the compiler gets."""
    return parse_program(entry.instance("float32", 1).program, "spmv", "float32").source


@pytest.mark.parametrize("family", LITERAL)
def test_matrices_share_texts_that_were_one_for_each(family: str) -> None:
    listed = [prospects(pattern, family) for pattern in PATTERNS]
    literal = [{source(each) for each in of_pattern} for of_pattern in listed]
    reusable = [{source(stand_in(each)) for each in of_pattern} for of_pattern in listed]
    assert all(literal)
    shared = set.intersection(*reusable)
    assert 3 * len(set.union(*reusable)) <= len(set.union(*literal))
    assert shared
    assert any(text in shared for text in map(text_of, common_texts()))


def text_of(common: tuple[str, str]) -> str:
    return parse_program(common[0], "spmv", "float32" if common[1] == "float32" else "float64").source


@pytest.mark.parametrize("family", LITERAL)
def test_a_stand_in_keeps_the_estimate_and_fits_the_matrix(family: str) -> None:
    for pattern in PATTERNS[:2]:
        for entry in prospects(pattern, family)[::4]:
            stands = stand_in(entry)
            assert stands.estimated_us == entry.estimated_us
            assert stands.family.accepts(stands.parameters, "float32")
            program = parse_program(stands.instance("float32", 1).program, "spmv", "float32")
            layout = program.format.build(pattern, program.parameters)
            assert layout.sizes.get("num_bins", 1) <= MAX_SIZED_BINS


def test_what_holds_nothing_of_the_matrix_stands_for_itself() -> None:
    entry = prospects(PATTERNS[0], "csr_vector")[0]
    assert stand_in(entry) is entry


def test_searches_propose_none() -> None:
    listed = prospects_of(work_of(PATTERNS[1], "float64"), "spmv", "float64")
    assert not {each.family.name for each in listed} & {"row_bins_any", "ell_any"}


def test_only_what_is_handed_out_at_once_stands_in() -> None:
    pattern = PATTERNS[1]
    problem = Problem(Workload(pattern=pattern.digest, operation="spmv", element_type="float32"), pattern)
    literal = [each.instance.family for each in choices(problem, AnalyticCost(), stands_in=False)]
    handed_out = [each.instance.family for each in choices(problem, AnalyticCost())]
    expected = {"row_bins": "row_bins_any", "ell_fixed": "ell_any"}
    assert handed_out == [expected.get(name, name) for name in literal]
    assert set(literal) & set(expected)
