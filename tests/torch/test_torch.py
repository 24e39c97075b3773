"""The operator in torch, on the CPU: gradients, fake tensors, whole graphs."""

import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from sparsesmith.errors import Conflict, InvalidInput
from sparsesmith.operator import Operator
from tests.artifacts.answers import make_matrix, make_report

torch = pytest.importorskip("torch")

MATRIX = make_matrix(12, 9, 0.3)
NNZ = MATRIX.nnz
pytestmark = pytest.mark.filterwarnings("ignore:.*SciPy computes the products:RuntimeWarning")
both_ways = pytest.mark.parametrize("is_transposed", [False, True])


@pytest.fixture(autouse=True)
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)


@pytest.fixture
def operator() -> Operator:
    return Operator(make_report(MATRIX, None, element_type="float64"), MATRIX)


def normal(*shape: int, seed: int = 0, gradient: bool = True) -> Any:
    tensor = torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))
    return tensor.requires_grad_(gradient)


def with_values(values: Any) -> scipy.sparse.csr_matrix:
    return scipy.sparse.csr_matrix((values.detach().numpy(), MATRIX.indices, MATRIX.indptr), shape=MATRIX.shape)


@both_ways
@pytest.mark.parametrize("columns", [(), (3,)])
def test_gradients_by_x_and_by_values_are_those_of_finite_differences(
    operator: Operator, is_transposed: bool, columns: tuple[int, ...]
) -> None:
    from sparsesmith.torch import product

    given = operator.T if is_transposed else operator
    x, values = normal(given.shape[1], *columns), normal(NNZ, seed=1)
    matrix = with_values(values).T if is_transposed else with_values(values)
    np.testing.assert_allclose(product(given, x, values).detach(), matrix @ x.detach().numpy(), rtol=1e-13)
    assert torch.autograd.gradcheck(lambda x, values: product(given, x, values), (x, values))
    assert torch.autograd.gradgradcheck(lambda x, values: product(given, x, values), (x, values))
    assert torch.autograd.gradcheck(lambda x: product(given, x), (x,))


@both_ways
def test_opcheck_finds_nothing(operator: Operator, is_transposed: bool) -> None:
    import sparsesmith.torch  # noqa: F401  Registers.

    x = normal(12 if is_transposed else 9, 2)
    y, other = normal(12, 2), normal(9, 2)
    operator @ np.ones(9)
    for values in (None, normal(NNZ)):
        torch.library.opcheck(torch.ops.sparsesmith.product, (x, values, operator.handle, is_transposed))
    torch.library.opcheck(torch.ops.sparsesmith.sampled, (y, other, operator.handle))


def test_a_compiled_layer_is_one_graph_and_learns_what_the_eager_one_learns(operator: Operator) -> None:
    from sparsesmith.torch import SparseLayer

    layer = SparseLayer(operator)
    graphs: list[Any] = []

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    model = torch.nn.Sequential(layer, torch.nn.Tanh())
    compiled = torch.compile(model, fullgraph=True, backend=count)
    x = normal(9, 2)
    eager = model(x)
    found = compiled(x)
    assert len(graphs) == 1
    torch.testing.assert_close(found, eager)
    (by_values,) = torch.autograd.grad(eager.sum(), layer.values)
    found.sum().backward()
    torch.testing.assert_close(layer.values.grad, by_values)
    assert torch._dynamo.explain(model)(x).graph_break_count == 0


def test_the_whole_compiler_takes_both_directions_of_the_graph(operator: Operator) -> None:
    from sparsesmith.torch import SparseLayer

    layer, x = SparseLayer(operator.T), normal(12)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    compiled(x).square().sum().backward()
    expected = 2 * (MATRIX @ (MATRIX.T @ x.detach().numpy()))
    np.testing.assert_allclose(x.grad, expected, rtol=1e-12)
    assert layer.values.grad is not None and layer.values.grad.shape == (NNZ,)


@both_ways
def test_a_product_by_the_at_sign_has_a_gradient(operator: Operator, is_transposed: bool) -> None:
    given, matrix = (operator.T, MATRIX.T) if is_transposed else (operator, MATRIX)
    x = normal(given.shape[1])
    (given @ x).sum().backward()
    np.testing.assert_allclose(x.grad, matrix.T @ np.ones(matrix.shape[0]), rtol=1e-13)
    x.grad = None
    given.matvec(x, alpha=3).sum().backward()
    np.testing.assert_allclose(x.grad, 3 * (matrix.T @ np.ones(matrix.shape[0])), rtol=1e-13)
    with torch.no_grad():
        assert not (given @ x).requires_grad
    with pytest.raises(InvalidInput, match="out cannot have the gradient that x requires"):
        given.matvec(x, out=torch.zeros(given.shape[0], dtype=torch.float64))


def test_values_of_a_product_leave_the_operators_own_alone(operator: Operator) -> None:
    from sparsesmith.torch import product

    product(operator, normal(9), normal(NNZ))
    np.testing.assert_allclose(operator @ np.ones(9), MATRIX @ np.ones(9), rtol=1e-13)


@pytest.mark.parametrize(
    ("field", "x", "values"),
    [
        ("x", normal(8), None),
        ("x", normal(9).float(), None),
        ("x", normal(9, 2, 2), None),
        ("values", normal(9), normal(NNZ + 1)),
        ("values", normal(9), normal(NNZ).float()),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused_by_name(operator: Operator, field: str, x: Any, values: Any) -> None:
    from sparsesmith.torch import product

    with pytest.raises(InvalidInput) as caught:
        product(operator, x, values)
    assert caught.value.field == field


def test_an_operator_that_is_gone_or_closed_is_said_to_be(operator: Operator) -> None:
    from sparsesmith.torch import product

    with pytest.raises(Conflict, match="none that is alive"):
        torch.ops.sparsesmith.product(normal(9), None, 10**9, False)
    operator.close()
    for values in (None, normal(NNZ)):
        with pytest.raises(Conflict, match="closed"):
            product(operator, normal(9), values)


@both_ways
def test_a_product_is_an_operator_of_torch_only_where_somebody_hears_of_it(
    operator: Operator, is_transposed: bool
) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    from sparsesmith.torch import product

    heard: list[Any] = []

    class Listening(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            heard.append(func)
            return func(*args, **(kwargs or {}))

    given, matrix = (operator.T, MATRIX.T) if is_transposed else (operator, MATRIX)
    for x in (normal(given.shape[1], gradient=False), normal(given.shape[1], 3, gradient=False)):
        for each in (x, x * 2, torch.stack([x, x], -1)[..., 0]):  # The first, one like it, one that is not contiguous.
            np.testing.assert_allclose(product(given, each), matrix @ each.numpy(), rtol=1e-13)
    x = normal(given.shape[1])
    with Listening():  # type: ignore[no-untyped-call]
        product(given, x.detach())
    assert torch.ops.sparsesmith.product.default in heard
    with torch.autograd.profiler.profile() as events:
        product(given, x)
    assert "sparsesmith::product" in {event.name for event in events.function_events}
    turned = torch.complex(torch.zeros_like(x), x).detach().conj().imag
    assert turned.is_neg()
    np.testing.assert_allclose(product(given, turned), matrix @ -x.detach().numpy(), rtol=1e-13)
    mapped = torch.func.vmap(lambda x: product(given, x))(torch.stack([x, 2 * x]).detach())
    np.testing.assert_allclose(mapped[1], 2 * (matrix @ x.detach().numpy()), rtol=1e-13)


def test_products_of_tensors_follow_new_values_and_end_with_the_operator(operator: Operator) -> None:
    from sparsesmith.torch import product

    x = normal(9, gradient=False)
    product(operator, x)
    operator.update_values(np.full(NNZ, 2.0))
    expected = with_values(torch.full((NNZ,), 2.0)) @ x.numpy()
    np.testing.assert_allclose(product(operator, x), expected, rtol=1e-13)
    for columns in range(1, 70):  # More likenesses than are held.
        wide = normal(9, columns, gradient=False)
        np.testing.assert_allclose(product(operator, wide)[:, 0], product(operator, wide[:, 0]), rtol=1e-12)
    operator.close()
    with pytest.raises(Conflict, match="closed"):
        product(operator, x)
