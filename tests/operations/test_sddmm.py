"""Sampled products of dense matrices: what is right, and what is found of programs on the interpreter."""

import numpy as np
import pytest
import scipy.sparse

from services.evaluator.candidates import parse_text
from services.evaluator.checking.correctness import Correct
from services.evaluator.checking.draws import draw, kinds_of
from services.evaluator.compiling.compiler import Compiled, compile_own
from services.evaluator.interpreter.device import InterpreterDevice
from services.evaluator.isolation.workbench import LocalWorkbench
from sparsesmith.artifacts import kinds_of as files_of
from sparsesmith.errors import InvalidInput, InvalidOption
from sparsesmith.families import propose
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.directions import transposed_problem
from sparsesmith.operations.texts import programs_for
from sparsesmith.operator import Operator
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import Mismatch, Workload
from tests.artifacts.answers import make_report

MATRIX = scipy.sparse.random(40, 30, 0.1, format="csr", random_state=1)
PATTERN = pattern_from_scipy(MATRIX)
PROBLEM = Problem(
    Workload(pattern=PATTERN.digest, operation="sddmm", element_type="float64", num_dense_cols=5), PATTERN
)
PLAIN = programs_for(operation_named("sddmm"), "float64")


def checked(text: str, problem: Problem = PROBLEM) -> object:
    program = parse_text(text, problem.workload)
    assert isinstance(program, KernelProgram), program
    binary = compile_own(program.source, "sm_90")
    assert isinstance(binary, Compiled), binary
    return LocalWorkbench(InterpreterDevice(), problem).check("one", program, binary)


@pytest.mark.parametrize("kind", kinds_of(PROBLEM))
def test_a_number_for_each_nonzero_is_right_as_numpy_says(kind: str) -> None:
    drawn = draw(kind, PROBLEM, np.random.default_rng(2))
    dense = drawn.inputs["u"] @ drawn.inputs["v"].T
    assert np.all(abs(dense[MATRIX.nonzero()] - drawn.reference) <= drawn.bound + 1e-300)
    assert np.all(drawn.bound <= 1e-12 * drawn.magnitude + 1e-300)


@pytest.mark.parametrize("name", PLAIN)
def test_a_first_program_passes_and_one_that_leaves_a_column_out_does_not(name: str) -> None:
    assert isinstance(checked(PLAIN[name]), Correct)
    assert isinstance(checked(PLAIN[name].replace("c < num_dense_cols", "c < num_dense_cols - 1")), Mismatch)


def test_numbers_of_fewer_bits_than_their_type_are_wrong_where_one_product_is_all_of_a_sum() -> None:
    cut = "__device__ double cut(double v) { return __longlong_as_double(__double_as_longlong(v) & ~63ll); }\n"
    text = PLAIN["plain_coo_scalar"].replace("z[k] = sum", "z[k] = cut(sum)").replace('extern "C"', cut + 'extern "C"')
    one = Problem(PROBLEM.workload.model_copy(update={"num_dense_cols": 1}), PATTERN)
    assert isinstance(checked(PLAIN["plain_coo_scalar"], one), Correct)
    assert isinstance(checked(text, one), Mismatch)


def test_families_propose_and_what_they_write_passes() -> None:
    instances = propose(PATTERN, "sddmm", "float64", 5, limit=12)
    firsts = {each.family: each.program for each in reversed(instances)}
    assert set(firsts) == {"sampled_entries", "sampled_rows"}
    assert all(isinstance(checked(text), Correct) for text in firsts.values())


def test_it_is_no_product_of_the_matrix() -> None:
    report = make_report(MATRIX, PLAIN["plain_coo_scalar"], element_type="float64", operation="sddmm", num_dense_cols=5)
    assert files_of(report) == ("cu", "json")
    with pytest.raises(InvalidInput, match="report: sddmm is no product"):
        Operator(report, MATRIX)
    with pytest.raises(InvalidOption, match="transposed is yes: sddmm is no product"):
        transposed_problem(PROBLEM, "copy")
