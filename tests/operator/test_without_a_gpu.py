"""`kernel @ x` where there is no CuPy: SciPy computes it, and says so once."""

import sys
import warnings
from typing import Any

import numpy as np
import pytest

from sparsesmith.elements import dtype_of
from sparsesmith.errors import InvalidInput
from sparsesmith.operations.sums import ROUNDOFF
from sparsesmith.operator import Operator
from tests.artifacts.answers import CSR_PROGRAM, make_matrix, make_report

MATRIX = make_matrix()

either_answer = pytest.mark.parametrize("program", [CSR_PROGRAM, None], ids=["kernel", "library"])


@pytest.fixture(autouse=True)
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it is not installed: importing it fails."""
    monkeypatch.setitem(sys.modules, "cupy", None)


def product(kernel: Operator, dense: Any) -> Any:
    """The first product, which warns."""
    with pytest.warns(
        RuntimeWarning, match="needs CuPy.*SciPy computes the products of this kernel on the CPU"
    ) as said:
        result = kernel @ dense
    assert [warning.filename for warning in said] == [__file__]
    return result


@pytest.mark.parametrize(
    ("program", "workload", "shape"),
    [
        (CSR_PROGRAM, {}, (30,)),
        (None, {}, (30,)),
        (None, {"element_type": "float64"}, (30,)),
        (None, {"operation": "spmm", "num_dense_cols": 4}, (30, 4)),
        (None, {"element_type": "float16"}, (30,)),
        (None, {"element_type": "bfloat16"}, (30,)),
    ],
)
def test_scipy_computes_the_product_and_says_so_once(
    program: str | None, workload: dict[str, Any], shape: tuple[int, ...]
) -> None:
    report = make_report(MATRIX, program, **workload)
    kernel = Operator(report, MATRIX)
    x = np.random.default_rng(1).standard_normal(shape)
    found = product(kernel, x)
    element_type = report.workload.element_type
    assert (found.dtype, found.shape) == (dtype_of(element_type), (40, *shape[1:]))
    error = max(1e-5, 4 * ROUNDOFF[element_type])
    np.testing.assert_allclose(found.astype(np.float64), MATRIX @ x, rtol=error, atol=error)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(kernel @ x, found)


@either_answer
def test_a_tensor_gives_a_tensor_and_new_values_are_used(program: str | None) -> None:
    torch = pytest.importorskip("torch")
    kernel = Operator(make_report(MATRIX, program), MATRIX)
    x = torch.linspace(0, 1, 30, dtype=torch.bfloat16)
    found = product(kernel, x)
    assert (type(found), found.dtype) == (torch.Tensor, torch.float32)
    np.testing.assert_allclose(found.numpy(), MATRIX @ x.float().numpy(), rtol=1e-5, atol=1e-6)
    kernel.update_values(MATRIX * 3)
    np.testing.assert_allclose((kernel @ x).numpy(), 3 * found.numpy(), rtol=1e-5)


@pytest.mark.parametrize("element_type", ["float16", "bfloat16"])
def test_tensors_of_a_short_type_give_tensors_of_it(element_type: str) -> None:
    torch = pytest.importorskip("torch")
    kernel = Operator(make_report(MATRIX, None, element_type=element_type), MATRIX)
    x = torch.linspace(0, 1, 30, dtype=getattr(torch, element_type))
    found = product(kernel, x)
    assert (type(found), found.dtype) == (torch.Tensor, x.dtype)
    np.testing.assert_allclose(found.double().numpy(), MATRIX @ x.double().numpy(), rtol=0.02, atol=0.02)


@either_answer
def test_a_wrong_shape_is_refused(program: str | None) -> None:
    kernel = Operator(make_report(MATRIX, program), MATRIX)
    with pytest.raises(InvalidInput, match="shape"):
        kernel @ np.zeros(31)
