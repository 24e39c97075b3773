"""Sizes that a program was written for: named in its directives, checked before anything is compiled."""

import numpy as np
import pytest
import scipy.sparse as sp

from services.evaluator.candidates import Filled, parse_candidates
from sparsesmith.errors import InvalidProgram
from sparsesmith.families import FAMILIES, propose
from sparsesmith.families.fixed.rows import FIXED_FAMILIES
from sparsesmith.formats import complete_parameters, format_named
from sparsesmith.formats.known_sizes import known_sizes
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.program.directives import Requirement, parse_directives
from sparsesmith.program.program import KernelProgram, check_sizes, parse_program
from sparsesmith_proto.kernel import Candidate, Rejected, UserWritten, Workload
from tests.families import golden
from tests.program.programs import make_program

LAUNCH = "//@ launch spmv grid=1 block=32\n"


def pattern_of(width: int, num_rows: int = 50) -> Pattern:
    """A band of `width`."""
    return pattern_from_scipy(
        sp.diags_array(np.ones((width, 1)), offsets=range(width), shape=(num_rows, num_rows + 40))
    )


def test_requirements_are_read_with_their_line() -> None:
    directives = parse_directives("//@ format ell\n" + LAUNCH + "//@ require width=3 num_rows=7\n")
    assert directives.requirements == (Requirement("width", 3, 3), Requirement("num_rows", 7, 3))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("//@ require", "line 2: 0 requirements"),
        ("//@ require width", "line 2: requirement 'width' is not NAME=NUMBER"),
        ("//@ require width=-1", "line 2: requirement 'width=-1' is not NAME=NUMBER"),
        ("//@ require width=" + 11 * "1", "is not NAME=NUMBER"),
        ("//@ require " + 9 * "width=1 ", "line 2: 9 requirements"),
    ],
)
def test_a_malformed_requirement_is_refused_with_its_line(line: str, reason: str) -> None:
    with pytest.raises(InvalidProgram, match=reason):
        parse_directives(f"//@ format ell\n{line}\n{LAUNCH}")


def test_a_requirement_names_a_size_of_the_format() -> None:
    with pytest.raises(InvalidProgram, match=r"line 2: unknown size 'width' \(known: num_rows, num_cols, nnz\)"):
        requiring("width=3")
    with pytest.raises(InvalidProgram, match="unknown size 'num_sms'"):
        requiring("num_sms=132")


def requiring(requirements: str) -> KernelProgram:
    return parse_program(make_program(format_=f"//@ format csr\n//@ require {requirements}"), "spmv", "float32")


def test_a_matrix_of_another_size_is_refused_with_line_value_and_limit() -> None:
    program = requiring("num_rows=51")
    check_sizes(program, {"num_rows": 51})
    check_sizes(program, {})
    with pytest.raises(InvalidProgram, match="line 2: the program requires num_rows=51, this matrix has 50") as refusal:
        check_sizes(program, {"num_rows": 50})
    assert (refusal.value.field, refusal.value.value, refusal.value.limit) == ("num_rows", "51", "50")


@pytest.mark.parametrize(("name", "size"), [("ell", "width"), ("dia", "num_diagonals")])
def test_what_is_known_of_a_format_is_what_it_has_when_it_is_built(name: str, size: str) -> None:
    pattern = pattern_from_scipy(sp.random(80, 60, 0.05, format="csr", rng=np.random.default_rng(3)))
    format_ = format_named(name)
    built = format_.build(pattern, complete_parameters(format_, {}))
    assert known_sizes(format_, pattern)[size] == built.sizes[size]


def candidate(text: str) -> Candidate:
    return Candidate(candidate_id="c", program=text, origin=UserWritten())


def test_a_width_that_does_not_fit_the_matrix_is_refused_before_anything_is_built() -> None:
    narrow, wide = pattern_of(3), pattern_of(4)
    workload = Workload(pattern=wide.digest, operation="spmv", element_type="float32")
    for_three = next(each.program for each in propose(narrow, "spmv", "float32") if each.family == "ell_fixed")
    (fits,) = parse_candidates([Filled(candidate(for_three))], workload, narrow)
    (misfit,) = parse_candidates([Filled(candidate(for_three))], workload, wide)
    assert isinstance(fits.program, KernelProgram)
    assert misfit.program == Rejected(message="line 2: the program requires width=3, this matrix has 4")


@pytest.mark.parametrize("name", [*FAMILIES, *FIXED_FAMILIES])
def test_every_family_whose_kernels_end_at_another_size_says_which_they_are_for(name: str) -> None:
    _, text = next(golden.texts_of({**FAMILIES, **FIXED_FAMILIES}[name]))
    for size in ("width", "num_diagonals"):
        assert (f"{size} != " in text) == (f"//@ require {size}=" in text)
