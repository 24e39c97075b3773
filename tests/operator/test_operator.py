"""The operator where SciPy computes: both directions, scaled, into the caller's memory; views, new values, closing."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse import linalg

import sparsesmith
from sparsesmith.elements import dtype_of
from sparsesmith.errors import Conflict, InvalidInput, InvalidMatrix
from sparsesmith.operator import Operator
from sparsesmith.operator.file import read_sections
from sparsesmith.program.starting import starting_program
from tests.artifacts.answers import CSR_PROGRAM, make_matrix, make_report

MATRIX = make_matrix()
pytestmark = pytest.mark.filterwarnings("ignore:.*SciPy computes the products:RuntimeWarning")


@pytest.fixture(autouse=True)
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it is not installed."""
    monkeypatch.setitem(sys.modules, "cupy", None)


def make_operator(matrix: Any = MATRIX, program: str | None = None, **workload: Any) -> Operator:
    """In float64 unless said otherwise."""
    return Operator(make_report(matrix, program, **{"element_type": "float64", **workload}), matrix)


def normal(*shape: int, seed: int = 1) -> "np.ndarray[Any, Any]":
    return np.random.default_rng(seed).standard_normal(shape)


def indices_of(matrix: Any) -> tuple[Any, Any]:
    return matrix.indices, matrix.indptr


def symmetric(extent: int = 200) -> Any:
    """Positive definite, badly enough scaled that a solver takes tens of iterations."""
    sparse = scipy.sparse.random(extent, extent, 0.03, format="csr", random_state=3)
    spread = scipy.sparse.diags(np.linspace(1, 100, extent))
    return scipy.sparse.csr_matrix(sparse @ sparse.T + spread)


def test_an_operator_says_what_it_is() -> None:
    operator = make_operator()
    assert (operator.shape, operator.T.shape, operator.ndim) == ((40, 30), (30, 40), 2)
    assert (operator.dtype, operator.nnz, operator.device_bytes) == (np.float64, MATRIX.nnz, 0)
    assert operator.T.T.shape == operator.H.H.shape == operator.shape
    assert repr(operator) == f"<Operator 40 x 30, {MATRIX.nnz} nonzeros, float64, spmv>"
    assert operator.program is None and make_operator(program=CSR_PROGRAM, element_type="float32").program


@pytest.mark.parametrize("columns", [None, 1, 5])
def test_both_directions_are_scipys_product(columns: int | None) -> None:
    operator, shape = make_operator(), () if columns is None else (columns,)
    x, y = normal(30, *shape), normal(40, *shape)
    forward, backward = (operator.matvec, operator.rmatvec) if not shape else (operator.matmat, operator.rmatmat)
    for found in (forward(x), operator @ x, (x.T @ operator.T).T):
        np.testing.assert_allclose(found, MATRIX @ x, rtol=1e-14, atol=1e-14)
    for found in (backward(y), operator.T @ y, operator.H @ y, (y.T @ operator).T):
        np.testing.assert_allclose(found, MATRIX.T @ y, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("element_type", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("alpha", "beta"), [(1, 0), (2, 0), (1, 1), (-0.5, 3)])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_product_is_scaled_and_added_in_place(
    element_type: Any, alpha: float, beta: float, is_transposed: bool
) -> None:
    operator = make_operator(element_type=element_type)
    num_given, num_results = operator.shape if is_transposed else operator.shape[::-1]
    kind = dtype_of(element_type)
    x, before = normal(num_given, 3).astype(kind), normal(num_results, 3, seed=2).astype(kind)
    out = before.copy() if beta else np.full((num_results, 3), np.nan).astype(kind)
    method = operator.rmatmat if is_transposed else operator.matmat
    assert method(x, out=out, alpha=alpha, beta=beta) is out
    exact = scipy.sparse.csr_matrix((MATRIX.data.astype(kind).astype(float), *indices_of(MATRIX)), MATRIX.shape)
    product = (exact.T if is_transposed else exact) @ x.astype(np.float64)
    error = {"float64": 1e-14, "float32": 1e-5, "float16": 1e-2, "bfloat16": 8e-2}[element_type]
    expected = alpha * product + beta * before.astype(np.float64)
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=error, atol=4 * error)


def test_a_tensor_is_written_in_place() -> None:
    torch = pytest.importorskip("torch")
    operator = make_operator()
    x, out = torch.from_numpy(normal(30)), torch.full((40,), torch.nan, dtype=torch.float64)
    assert operator.matvec(x, out=out, alpha=3) is out
    np.testing.assert_allclose(out.numpy(), 3 * (MATRIX @ x.numpy()), rtol=1e-14)


def test_scipys_solvers_take_the_operator_as_their_matrix() -> None:
    matrix = symmetric()
    operator, b = make_operator(matrix), normal(200)
    for solve in (linalg.cg, linalg.gmres):
        found, trouble = solve(operator, b, rtol=1e-12, maxiter=2000)
        expected, _ = solve(matrix, b, rtol=1e-12, maxiter=2000)
        assert trouble == 0
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    wrapped = linalg.aslinearoperator(operator)
    assert wrapped.dtype == np.float64
    np.testing.assert_allclose(wrapped.T @ b, matrix.T @ b, rtol=1e-12)


def test_scipys_singular_values_are_those_of_the_matrix() -> None:
    operator, start = make_operator(), normal(30)
    found = linalg.svds(operator, k=4, v0=start, return_singular_vectors=False)
    np.testing.assert_allclose(found, linalg.svds(MATRIX, k=4, v0=start, return_singular_vectors=False), rtol=1e-10)


def as_array(data: Any) -> Any:
    return np.array(data)


def as_tensor(data: Any) -> Any:
    return pytest.importorskip("torch").from_numpy(np.array(data))


def as_matrix(data: Any) -> Any:
    return scipy.sparse.csr_matrix((data, *indices_of(MATRIX)), shape=MATRIX.shape).tocoo()


@pytest.mark.parametrize("given", [as_array, as_tensor, as_matrix])
@pytest.mark.parametrize("is_used_before", [False, True])
def test_new_values_reach_every_view(given: Callable[[Any], Any], is_used_before: bool) -> None:
    operator, x = make_operator(), normal(30)
    view = operator.T
    if is_used_before:
        operator @ x
    values = normal(MATRIX.nnz, seed=5)
    operator.update_values(given(values))
    updated = scipy.sparse.csr_matrix((values.copy(), *indices_of(MATRIX)), shape=MATRIX.shape)
    values[:] = np.nan
    np.testing.assert_allclose(operator @ x, updated @ x, rtol=1e-14)
    np.testing.assert_allclose(view @ normal(40), updated.T @ normal(40), rtol=1e-14)
    assert abs(operator.to_scipy() - updated).max() == 0 and abs(view.to_scipy() - updated.T).max() == 0


@pytest.mark.parametrize("given", [as_array, as_tensor])
@pytest.mark.parametrize("is_used_before", [False, True])
def test_values_of_a_view_are_those_of_the_transpose(given: Callable[[Any], Any], is_used_before: bool) -> None:
    operator, transpose = make_operator(), MATRIX.T.tocsr()
    if is_used_before:
        operator @ normal(30)
    transpose.data = normal(MATRIX.nnz, seed=5)
    operator.T.update_values(given(transpose.data))
    assert abs(operator.T.to_scipy() - transpose).max() == 0
    operator.T.update_values(transpose * 2)
    np.testing.assert_allclose(operator @ normal(30), 2 * (transpose.T @ normal(30)), rtol=1e-13)
    with pytest.raises(InvalidMatrix, match="another pattern"):
        operator.T.update_values(MATRIX)


def test_both_directions_may_have_a_report(tmp_path: Path) -> None:
    transpose = MATRIX.T.tocsr()
    plain = starting_program("csr", "spmv", "float64")
    backward = make_report(transpose, starting_program("sell", "spmv", "float64"), element_type="float64")
    operator = Operator(make_report(MATRIX, plain, element_type="float64"), MATRIX, transposed=backward)
    assert operator.T.report == backward and operator.report.num_rows == 40
    assert operator.program == plain and "sell" in str(operator.T.program)
    operator.save(tmp_path / "A")
    sections = read_sections(tmp_path / "A")
    assert b"argument index slice_offsets" in bytes(sections["T.plan"])
    loaded = sparsesmith.load(tmp_path / "A")
    assert (loaded.T.report, loaded.T.program) == (backward, operator.T.program)
    np.testing.assert_array_equal(loaded.T @ normal(40), transpose @ normal(40))
    with pytest.raises(InvalidMatrix, match="transposed is of shape"):
        Operator(operator.report, MATRIX, transposed=operator.report)


def test_threads_may_share_an_operator() -> None:
    operator = make_operator()
    given = [normal(30, seed=seed) for seed in range(64)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(operator.matvec, given))
    for x, y in zip(given, found, strict=True):
        np.testing.assert_array_equal(y, MATRIX @ x)


def test_a_closed_operator_and_its_views_refuse_everything() -> None:
    with make_operator() as operator:
        view = operator.T
        operator @ normal(30)
    for use in (
        lambda: operator @ normal(30),
        lambda: view @ normal(40),
        lambda: operator.update_values(MATRIX.data),
        lambda: operator.save("nowhere"),
        operator.to_scipy,
    ):
        with pytest.raises(Conflict, match="closed") as caught:
            use()
        assert caught.value.field == "operator"


def shared_halves() -> tuple[Any, Any]:
    memory = np.zeros(60)
    return memory[:30], memory[20:60]


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("x", lambda op: op.matvec(normal(30) * 1j)),
        ("x", lambda op: op.matvec(np.array(["one"] * 30))),
        ("x", lambda op: op.matvec(scipy.sparse.identity(30))),
        ("x", lambda op: op.matvec([[1.0], [1.0, 2.0]])),
        ("x", lambda op: op.matvec(normal(40))),
        ("x", lambda op: op.rmatvec(normal(30))),
        ("x", lambda op: op.matvec(normal(30, 2))),
        ("x", lambda op: op.matmat(normal(30))),
        ("x", lambda op: op @ normal(30, 2, 2)),
        ("x", lambda op: op @ 3.0),
        ("x", lambda op: normal(30) @ op),
        ("x", lambda op: op.matvec(normal(30).astype(np.float32), out=np.zeros(40))),
        ("x", lambda op: op.matvec(normal(60)[::2], out=np.zeros(40))),
        ("x", lambda op: op.matmat(normal(5, 30).T, out=np.zeros((40, 5)))),
        ("out", lambda op: op.matvec(normal(30), out=np.zeros(40, np.float32))),
        ("out", lambda op: op.matvec(normal(30), out=np.zeros(30))),
        ("out", lambda op: op.matvec(normal(30), out=np.zeros((40, 1)))),
        ("out", lambda op: op.matvec(normal(30), out=np.zeros(80)[::2])),
        ("out", lambda op: op.matmat(normal(30, 5), out=np.zeros((5, 40)).T)),
        ("out", lambda op: op.matvec(normal(30), out=[0.0] * 40)),
        ("out", lambda op: op.matvec(normal(30), out=np.broadcast_to(np.zeros(40), 40))),
        ("out", lambda op: op.matvec((halves := shared_halves())[0], out=halves[1])),
        ("x", lambda op: op.matvec(normal(30, 5), out=np.zeros((40, 5)))),
        ("x", lambda op: op.matmat(normal(30), out=np.zeros(40))),
        ("x", lambda op: op.rmatvec(normal(30), out=np.zeros(40))),
        ("beta", lambda op: op.matvec(normal(30), beta=1)),
        ("beta", lambda op: op.matvec(normal(30), out=np.zeros(40), beta=float("nan"))),
        ("alpha", lambda op: op.matvec(normal(30), alpha=1j)),
        ("alpha", lambda op: op.matvec(normal(30), alpha="2")),
        ("alpha", lambda op: op.matvec(normal(30), alpha=np.ones(3))),
        ("alpha", lambda op: op.matvec(normal(30), alpha=float("inf"))),
        ("values", lambda op: op.update_values(normal(MATRIX.nnz + 1))),
        ("values", lambda op: op.update_values(normal(MATRIX.nnz, 1))),
        ("values", lambda op: op.update_values(normal(MATRIX.nnz) * 1j)),
        ("pattern", lambda op: op.update_values(make_matrix(seed=1))),
    ],
)
@pytest.mark.parametrize("is_used_before", [False, True])
def test_what_is_wrong_is_refused_by_the_arguments_name(
    field: str, call: Callable[[Operator], Any], is_used_before: bool
) -> None:
    operator = make_operator()
    if is_used_before:  # What is right was seen, and is not looked at again.
        for _ in range(2):
            operator.matvec(normal(30), out=np.zeros(40))
            operator.matmat(normal(30, 5), out=np.zeros((40, 5)))
            operator.rmatvec(normal(40), out=np.zeros(30))
    with pytest.raises(InvalidInput) as caught:
        call(operator)
    assert caught.value.field == field and caught.value.limit is not None
    assert caught.value.message.startswith(field) or field == "pattern"
    np.testing.assert_array_equal(operator @ np.ones(30), MATRIX @ np.ones(30))


def test_a_product_is_not_written_over_its_operand() -> None:
    matrix = symmetric(20)
    operator, x = make_operator(matrix), normal(20)
    with pytest.raises(InvalidInput, match="out is x itself"):
        operator.matvec(x, out=x)
    with pytest.raises(InvalidInput, match="out overlaps x"):
        operator.matvec(x, out=x[:])
    operator.matvec(x, out=normal(20))
    for out, words in ((x, "out overlaps x"), (x[:], "out overlaps x")):
        with pytest.raises(InvalidInput, match=words):
            operator.matvec(x, out=out)


def test_tensors_of_another_kind_or_with_a_gradient_are_no_place_for_a_result() -> None:
    torch = pytest.importorskip("torch")
    operator, x = make_operator(), torch.ones(30, dtype=torch.float64)
    operator.matvec(x, out=torch.zeros(40, dtype=torch.float64))
    with pytest.raises(InvalidInput, match="out is an array of numpy, x of torch"):
        operator.matvec(x, out=np.zeros(40))
    with pytest.raises(InvalidInput, match="out cannot have the gradient that x requires"):
        operator.matvec(x.clone().requires_grad_(), out=torch.zeros(40, dtype=torch.float64))
    with pytest.raises(InvalidInput, match="x is not contiguous"):
        operator.matvec(torch.ones(60, dtype=torch.float64)[::2], out=torch.zeros(40, dtype=torch.float64))
    with pytest.raises(InvalidInput, match="out requires a gradient"):
        operator.matvec(x, out=torch.zeros(40, dtype=torch.float64, requires_grad=True))
    with pytest.raises(InvalidInput, match="out holds float32"):
        operator.matvec(x, out=torch.zeros(40))
    with pytest.raises(InvalidInput, match="x holds complex64"):
        operator.matvec(torch.ones(30, dtype=torch.complex64))


def test_a_matrix_of_another_shape_is_no_operand_of_the_report() -> None:
    with pytest.raises(InvalidMatrix, match="shape"):
        Operator(make_report(MATRIX), make_matrix(40, 31))
