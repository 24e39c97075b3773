"""Families write what follows from the matrix by name: filled in, it is the text that they write with its numbers."""

import itertools
import re

import numpy as np
import pytest
import scipy.sparse as sp

from services.evaluator.local import HeldMatrix, grader_here
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.families import FAMILIES, FamilyInstance, propose
from sparsesmith.families.fixed.rows import FIXED_FAMILIES
from sparsesmith.families.proposal import prospects_of, work_of
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import bind_numbers, is_open
from sparsesmith_proto.evaluation import EvaluationJob
from sparsesmith_proto.kernel import Candidate, Outcome, UserWritten, Workload
from sparsesmith_proto.message import Operation
from tests.families import golden

WITH_FACTS = {
    "ell_fixed", "dia_literal", "dia_literal_wide", "row_bins", "row_bins_reordered", "spmm_ell",
    "dia_rows", "dia_rows_wide", "ell_rows", "spmm_rows_split",
    "csr_tiles", "csr_warp_tiles", "csr_tiles_sorted", "csr_tiles_split", "coo_segmented", "spmm_tiles", "spmm_hyb",
    "spmm_rows", "spmm_rows_shuffle", "spmm_rows_staged", "spmm_merge", "spmm_sell", "spmm_sell_reordered", "spmm_bsr",
    "spmm_bsr_split", "spmm_dia", "spmm_panel", "spmm_resident", "spmm_cells", "spmm_hubs", "spmm_distinct",
    "spmm_distinct_reordered",
}  # fmt: skip
EVERY_FAMILY = {**FAMILIES, **FIXED_FAMILIES}
A_STEP = 29
"""Of the prospects of a family, one in so many: some have thousands."""


def bound(instance: FamilyInstance, pattern: Pattern, operation: Operation) -> str:
    circumstances = Circumstances(pattern, instance.num_dense_cols, 132)
    return bind_numbers(instance.written, {}, circumstances, operation, instance.element_type).text


@pytest.mark.parametrize("name", golden.PATTERNS)
def test_an_open_program_is_filled_in_as_the_family_writes_it(name: str) -> None:
    pattern = golden.PATTERNS[name]()
    for operation, element_type, columns in golden.WORKLOADS:
        with_facts = [
            entry
            for entry in prospects_of(work_of(pattern, element_type, columns), operation, element_type)
            if entry.family.has_facts
        ]
        for entry in with_facts[::A_STEP]:
            instance = entry.instance(element_type, columns)
            assert is_open(instance.written)
            assert bound(instance, pattern, operation) == instance.program


@pytest.mark.parametrize("name", golden.FIXED_PATTERNS)
def test_so_is_one_for_fixed_values(name: str) -> None:
    pattern = golden.PATTERNS[name]()
    for _, (operation, _, _), instances in golden.for_fixed_values(name):
        for instance in instances:
            assert bound(instance, pattern, operation) == instance.program
            assert is_open(instance.written) == EVERY_FAMILY[instance.family].has_facts


def test_families_that_hold_facts_are_those_that_say_so() -> None:
    assert {name for name, family in EVERY_FAMILY.items() if family.has_facts} == WITH_FACTS


@pytest.mark.parametrize("name", sorted(EVERY_FAMILY))
def test_only_they_write_an_open_text(name: str) -> None:
    family = EVERY_FAMILY[name]
    for columns in (8, 32) if family.operation == "spmm" else (1,):
        for choice in itertools.islice(golden.choices(family, "float32", columns), 8):
            plain, opened = (family.render(choice, "float32", columns, is_open=is_open_) for is_open_ in (False, True))
            assert not is_open(plain)
            assert is_open(opened) == family.has_facts
            assert family.has_facts or opened == plain


@pytest.mark.parametrize("name", sorted(name for name in WITH_FACTS if name.startswith("spmm")))
@pytest.mark.parametrize("columns", [56, 100, 1000])
def test_no_open_text_holds_the_number_of_dense_columns(name: str, columns: int) -> None:
    """Whoever writes one for a number that it never saw need not know it."""
    family = EVERY_FAMILY[name]
    for choice in itertools.islice(golden.choices(family, "float32", columns), 40):
        opened = family.render(choice, "float32", columns, is_open=True)
        assert not re.search(rf"\b({columns}|{columns - 1}|{columns - 4})\b", opened)


@pytest.mark.parametrize("name", ["spmm_tiles", "spmm_rows_split", "spmm_hyb"])
def test_a_shape_is_one_text_for_several_numbers_of_dense_columns(name: str) -> None:
    family = EVERY_FAMILY[name]
    defaults = {key: spec.default for key, spec in family.parameters.items()}
    texts = {
        family.render(defaults | {"vector": 4, "lanes": columns // 4, "block": 256}, "float32", columns, is_open=True)
        for columns in (16, 32)
    }
    assert len(texts) == 1


def test_open_programs_of_two_matrices_are_the_same_text() -> None:
    """That is what can be learned: no number of a matrix stands in it."""
    texts = []
    for name in ("tridiagonal", "five points"):
        pattern = golden.PATTERNS[name]()
        texts.append(
            {each.written for each in propose(pattern, "spmv", "float32", limit=200) if each.family == "dia_literal"}
        )
    assert texts[0] & texts[1]


@pytest.mark.parametrize(("lanes", "block", "index"), [(8, 128, "i32"), (16, 64, "i32"), (4, 64, "u16")])
def test_a_tile_that_a_row_does_not_fit_grows_with_it(lanes: int, block: int, index: str) -> None:
    """A policy writes such texts without knowing how long the longest row is."""
    dense = np.random.default_rng(7).random((90, 700)) < 0.02
    dense[40, :483] = True
    pattern = pattern_from_scipy(sp.csr_matrix(dense.astype(float)))
    family = FAMILIES["spmm_tiles"]
    defaults = {name: spec.default for name, spec in family.parameters.items()}
    parameters = defaults | {"lanes": lanes, "block": block, "index": index, "vector": 2}
    assert parameters["long_rows"] == "refuse"
    plain, written = (family.render(parameters, "float32", 32, is_open=is_open_) for is_open_ in (False, True))

    outcomes = graded(pattern, "spmm", 32, plain, written)
    assert [outcome.outcome for outcome in outcomes] == ["rejected", "passed"]
    assert "long_rows=split" in outcomes[0].message  # type: ignore[union-attr]


def graded(pattern: Pattern, operation: Operation, num_dense_cols: int, *programs: str) -> list[Outcome]:
    """On the interpreter."""
    workload = Workload(
        pattern=pattern.digest, operation=operation, element_type="float32", num_dense_cols=num_dense_cols
    )
    candidates = tuple(
        Candidate(candidate_id=str(number), program=program, origin=UserWritten())
        for number, program in enumerate(programs)
    )
    job = EvaluationJob(job_id="here", workload=workload, candidates=candidates)
    settings = EvaluatorSettings(device="interpreter", compile_limit_s=200)  # Others may use the machine.
    with grader_here(settings) as grader:
        report = grader.grade(job, HeldMatrix(pattern, None))
    return [each.outcome for each in report.evaluations]
