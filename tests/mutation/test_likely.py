"""The few changes that a search ends with."""

from itertools import islice

import pytest

from sparsesmith.families import FAMILIES
from sparsesmith.mutation import Subject, subject_of
from sparsesmith.mutation.likely import FARTHEST, likely_mutants
from sparsesmith.tuning.grid import grid_of
from tests.generator.orders import make_pattern


def subject_with(family: str, block: int) -> Subject:
    grid = grid_of(make_pattern(400, 300), "spmv", "float32")
    prospect = next(
        each for each in grid.prospects if (each.family.name, each.parameters.get("block")) == (family, block)
    )
    instance = prospect.instance("float32", 1)
    return subject_of(instance.program, make_pattern(400, 300), "spmv", "float32", 1, instance)


@pytest.mark.parametrize("block", [64, 128])
def test_the_nearest_sizes_that_the_family_does_not_offer_come_first(block: int) -> None:
    subject = subject_with("csr_vector", block)
    blocks = [
        int(each.deed.removeprefix("off_grid: block "))
        for each in likely_mutants(subject)
        if each.deed.startswith("off_grid: block ")
    ]
    ratios = [max(each / block, block / each) for each in blocks]
    offered = getattr(FAMILIES["csr_vector"].parameters["block"], "values", ())
    assert blocks
    assert ratios == sorted(ratios)
    assert max(ratios) <= FARTHEST
    assert not {*blocks} & {*offered}


def test_blocks_and_bounds_take_turns() -> None:
    kinds = [each.deed.split(":")[0] for each in islice(likely_mutants(subject_with("csr_vector", 128)), 8)]
    assert kinds == ["off_grid"] * 3 + ["bounds"] + ["off_grid"] * 3 + ["bounds"]


def test_a_program_that_no_family_wrote_has_its_bounds_changed_alone() -> None:
    subject = subject_with("csr_vector", 128)
    foreign = subject_of(subject.text, subject.matrix, "spmv", "float32")
    assert {each.deed.split(":")[0] for each in likely_mutants(foreign)} == {"bounds"}


def test_every_change_is_another_text() -> None:
    subject = subject_with("csr_vector", 128)
    texts = [each.text for each in likely_mutants(subject)]
    assert len({subject.text, *texts}) == 1 + len(texts)
