"""y = alpha A x + beta y: what is right of it, and programs of the product checked that way on the interpreter."""

import numpy as np
import pytest
import scipy.sparse

from services.evaluator.candidates import parse_text
from services.evaluator.checking.correctness import Correct
from services.evaluator.checking.draws import draw, kinds_of
from services.evaluator.compiling.compiler import Compiled, CompileError, compile_own
from services.evaluator.interpreter.device import InterpreterDevice
from services.evaluator.isolation.workbench import LocalWorkbench
from sparsesmith.errors import InvalidOption
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.scaled import ALPHA, BETA
from sparsesmith.operations.texts import programs_for
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import Mismatch, Workload

MATRIX = pattern_from_scipy(scipy.sparse.random(60, 50, 0.1, format="csr", random_state=1))


def make_problem(operation: str = "spmv", *, alpha_beta: bool = True, **changes: object) -> Problem:
    given = {"operation": operation, "element_type": "float64", "alpha_beta": alpha_beta, **changes}
    return Problem(Workload.model_validate({"pattern": MATRIX.digest, **given}), MATRIX)


def checked(problem: Problem, text: str) -> object:
    """What a check finds of a program, or why it does not compile."""
    program = parse_text(text, problem.workload)
    assert isinstance(program, KernelProgram), program
    binary = compile_own(program.source, "sm_90")
    if isinstance(binary, CompileError):
        return binary
    assert isinstance(binary, Compiled)
    return LocalWorkbench(InterpreterDevice(), problem).check("one", program, binary)


@pytest.mark.parametrize(
    "problem",
    [
        make_problem(),
        make_problem("spmm", num_dense_cols=3),
        make_problem("spmv_t"),
        make_problem("spmv_t", alpha_beta=False),
    ],
    ids=lambda problem: problem.operation.formula,
)
def test_what_is_right_of_every_draw_is_what_scipy_computes(problem: Problem) -> None:
    for kind in kinds_of(problem):
        drawn = draw(kind, problem, np.random.default_rng(2))
        matrix = MATRIX.to_scipy(drawn.values)
        matrix = matrix.T if problem.workload.operation == "spmv_t" else matrix
        product = matrix @ drawn.inputs["b" if "b" in drawn.inputs else "x"]
        if problem.workload.alpha_beta:
            product = ALPHA * product + BETA * drawn.inputs[drawn.output]
        assert np.all(abs(product - drawn.reference) <= drawn.bound + 1e-300), kind
        assert np.all(drawn.bound <= 1e-12 * drawn.magnitude + 1e-300), kind


@pytest.mark.parametrize(("operation", "columns"), [("spmv", 1), ("spmm", 3)])
def test_programs_of_the_product_pass_scaled(operation: str, columns: int) -> None:
    problem = make_problem(operation, num_dense_cols=columns)
    text = programs_for(operation_named(operation), "float64")["plain_csr_scalar"]
    assert isinstance(checked(problem, text), Correct)
    kept = text.replace("+= ", "+= 0 * ") if operation == "spmv" else text.replace("sum +=", "sum -=")
    assert isinstance(checked(problem, kept), Mismatch)


def test_what_is_added_atomically_is_scaled_too() -> None:
    text = programs_for(operation_named("spmv"), "float64")["plain_coo_atomic"]
    assert isinstance(checked(make_problem(), text), Correct)
    other = text.replace("&y[row_indices[k]]", "y + row_indices[k]")
    assert other != text and isinstance(checked(make_problem(), other), Correct)
    uncleared = text.replace("if (row < num_rows) y[row] = 0;", "")
    assert uncleared != text and isinstance(checked(make_problem(), uncleared), Mismatch)


def test_a_program_that_uses_what_an_atomic_addition_returns_does_not_compile_scaled() -> None:
    text = programs_for(operation_named("spmv"), "float64")["plain_coo_atomic"]
    refused = checked(make_problem(), text.replace("atomicAdd(", "double before = atomicAdd("))
    assert isinstance(refused, CompileError) and "before" in refused.log and "(10)" in refused.log


def test_a_program_that_stores_twice_is_found_wrong() -> None:
    text = programs_for(operation_named("spmv"), "float64")["plain_csr_scalar"]
    assert isinstance(checked(make_problem(), text.replace("  double sum", "  y[row] = 0;\n  double sum")), Mismatch)


def test_the_baselines_are_scaled_too() -> None:
    device_workload = InterpreterDevice().open(make_problem("spmm", num_dense_cols=3))
    assert [each.routine for each in device_workload.baselines().routines] == ["plain_csr_vector", "plain_csr_scalar"]


@pytest.mark.parametrize(("operation", "element_type"), [("spmv", "float16"), ("copy", "float32")])
def test_what_cannot_be_scaled_is_refused(operation: str, element_type: str) -> None:
    with pytest.raises(InvalidOption, match="alpha_beta"):
        if operation == "copy":
            Problem(Workload(operation="copy", element_type="float32", axes={"rows": 8, "cols": 8}, alpha_beta=True))
        make_problem(operation, element_type=element_type)
