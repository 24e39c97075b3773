"""The operator as PETSc's matrix, on a CPU build; run by test_petsc.py with a Python that has petsc4py."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from petsc4py import PETSc

from sparsesmith.errors import InvalidInput
from sparsesmith.operator import Operator
from sparsesmith.petsc import matrix
from tests.artifacts.answers import make_matrix, make_report

ROOT = Path(__file__).resolve().parents[2]
MATRIX = make_matrix()

pytestmark = pytest.mark.filterwarnings("ignore:.*SciPy computes the products:RuntimeWarning")


@pytest.fixture(autouse=True)
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of a CPU build lie on the host."""
    monkeypatch.setitem(sys.modules, "cupy", None)


def operator_of(csr: Any, element_type: str = "float64") -> Operator:
    return Operator(make_report(csr, None, element_type=element_type), csr)


def vector(numbers: Any) -> Any:
    return PETSc.Vec().createWithArray(np.array(numbers, np.float64), comm=PETSc.COMM_SELF)


def poisson(side: int) -> Any:
    line = scipy.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (side, side))
    return (scipy.sparse.kron(line, scipy.sparse.eye(side)) + scipy.sparse.kron(scipy.sparse.eye(side), line)).tocsr()


@pytest.fixture
def products() -> Iterator[Any]:
    made = matrix(operator_of(MATRIX))
    yield made
    made.destroy()


def test_both_directions_and_their_sums_are_those_of_the_matrix(products: Any) -> None:
    numbers = np.random.default_rng(3)
    for times, csr in ((products.mult, MATRIX), (products.multTranspose, MATRIX.T)):
        x, y = vector(numbers.standard_normal(csr.shape[1])), vector(np.full(csr.shape[0], np.nan))
        times(x, y)
        np.testing.assert_allclose(y.getArray(), csr @ x.getArray(), rtol=1e-13, atol=1e-13)
    for plus, csr in ((products.multAdd, MATRIX), (products.multTransposeAdd, MATRIX.T)):
        x, v = vector(numbers.standard_normal(csr.shape[1])), vector(numbers.standard_normal(csr.shape[0]))
        y = vector(np.full(csr.shape[0], np.nan))
        expected = v.getArray() + csr @ x.getArray()
        plus(x, v, y)
        np.testing.assert_allclose(y.getArray(), expected, rtol=1e-13, atol=1e-13)
        plus(x, v, v)
        np.testing.assert_allclose(v.getArray(), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("preconditioner", ["none", "jacobi"])
def test_conjugate_gradients_take_as_many_steps_as_with_petscs_own_matrix(preconditioner: str) -> None:
    csr = poisson(12)
    csr = (csr + scipy.sparse.diags(np.linspace(0, 5, csr.shape[0]))).tocsr()
    b = np.random.default_rng(5).standard_normal(csr.shape[0])
    own = PETSc.Mat().createAIJ(csr.shape, csr=(csr.indptr, csr.indices, csr.data), comm=PETSc.COMM_SELF)
    found = []
    for each in (own, matrix(operator_of(csr))):
        each.setOption(PETSc.Mat.Option.SYMMETRIC, True)
        solver = PETSc.KSP().create(PETSc.COMM_SELF)
        solver.setOperators(each)
        solver.setType("cg")
        solver.getPC().setType(preconditioner)
        solver.setTolerances(rtol=1e-11)
        right, x = vector(b), vector(np.zeros_like(b))
        solver.solve(right, x)
        assert solver.getConvergedReason() > 0
        assert np.linalg.norm(csr @ x.getArray() - b) <= 1e-9 * np.linalg.norm(b)
        found.append((solver.getIterationNumber(), x.getArray().copy()))
    assert abs(found[0][0] - found[1][0]) <= 1
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-9, atol=1e-10)


def test_least_squares_multiply_with_the_transpose(products: Any) -> None:
    solver = PETSc.KSP().create(PETSc.COMM_SELF)
    solver.setOperators(products)
    solver.setType("lsqr")
    solver.getPC().setType("none")
    solver.setTolerances(rtol=1e-12, max_it=500)
    right, x = vector(MATRIX @ np.ones(30)), vector(np.zeros(30))
    solver.solve(right, x)
    assert np.linalg.norm(MATRIX @ x.getArray() - right.getArray()) <= 1e-8


def test_new_values_of_the_operator_are_the_matrixs() -> None:
    operator = operator_of(MATRIX)
    made, x, y = matrix(operator), vector(np.ones(30)), vector(np.zeros(40))
    operator.update_values(3 * MATRIX.data)
    made.mult(x, y)
    np.testing.assert_allclose(y.getArray(), 3 * (MATRIX @ np.ones(30)), rtol=1e-13)


def test_a_vector_of_another_length_is_petscs_to_refuse(products: Any) -> None:
    with pytest.raises(PETSc.Error):
        products.mult(vector(np.ones(31)), vector(np.ones(40)))


def test_numbers_that_petsc_was_not_built_for_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="operator holds float32: this PETSc was built for float64"):
        matrix(operator_of(MATRIX, "float32"))


def test_the_example_solves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operator_of(poisson(8)).save(tmp_path / "A.operator")
    monkeypatch.setattr(sys, "argv", ["petsc_cg.py", str(tmp_path / "A.operator")])
    runpy.run_path(str(ROOT / "examples" / "petsc_cg.py"))
    assert capsys.readouterr().out.startswith("converged after ")
