"""Matrices of Python users on their way to the server."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from sparsesmith.errors import InvalidMatrix
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operator.matrices import to_scipy

DENSE = np.array([[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 4, 5]], np.float64)


def assert_canonical(csr: Any, dense: np.ndarray[Any, Any] = DENSE) -> None:
    np.testing.assert_array_equal(csr.toarray(), dense)
    assert (csr.format, csr.nnz) == ("csr", np.count_nonzero(dense))
    pattern = pattern_from_scipy(csr)
    np.testing.assert_array_equal(csr.indices, pattern.col_indices)
    np.testing.assert_array_equal(csr.indptr, pattern.row_offsets)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("make", [scipy.sparse.coo_matrix, scipy.sparse.coo_array])
def test_every_scipy_format_is_taken(form: str, make: Any) -> None:
    matrix = make(DENSE).asformat(form)
    if form in ("bsr", "dia"):  # These may hold explicit zeros, which count.
        csr = to_scipy(matrix)
        np.testing.assert_array_equal(csr.toarray(), DENSE)
    else:
        assert_canonical(to_scipy(matrix))


def test_unsorted_columns_and_duplicates_are_put_in_order_whatever_scipy_remembers() -> None:
    matrix = scipy.sparse.csr_matrix(([2.0, 1.0, 3.0, 5.0, 3.0, 1.0], [3, 1, 0, 3, 2, 2], [0, 2, 2, 6]), shape=(3, 4))
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    assert_canonical(to_scipy(matrix))


def test_the_copy_is_the_kernels_own() -> None:
    matrix = scipy.sparse.csr_matrix(DENSE)
    csr = to_scipy(matrix)
    matrix.data[:] = 0
    assert_canonical(csr)


def test_explicit_zeros_stay() -> None:
    matrix = scipy.sparse.csr_matrix(([0.0, 1.0], [0, 1], [0, 2]), shape=(1, 3))
    assert to_scipy(matrix).nnz == 2


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr"])
def test_every_layout_of_torch_is_taken(layout: str) -> None:
    torch = pytest.importorskip("torch")
    dense = np.kron(DENSE, np.ones((2, 2))) if layout == "sparse_bsr" else DENSE
    tensor = torch.from_numpy(dense)
    sparse = {
        "sparse_coo": tensor.to_sparse_coo,
        "sparse_csr": tensor.to_sparse_csr,
        "sparse_csc": tensor.to_sparse_csc,
        "sparse_bsr": lambda: tensor.to_sparse_bsr((2, 2)),
    }[layout]()
    assert_canonical(to_scipy(sparse), dense)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "int64", "bool"])
def test_element_types_of_torch_that_numpy_or_scipy_lack_are_widened(name: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).to(getattr(torch, name)).to_sparse_coo()
    np.testing.assert_array_equal(to_scipy(tensor).toarray(), [[0, 1], [1, 0]])


def test_a_tensor_that_is_not_coalesced_and_wants_gradients_is_taken() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2)).requires_grad_()
    np.testing.assert_array_equal(to_scipy(tensor).toarray(), [[0, 3], [0, 0]])


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (DENSE, "got ndarray"),
        ([[1, 2]], "got list"),
        (None, "got NoneType"),
        (scipy.sparse.csr_matrix(DENSE * 1j), "expected real numbers, got complex128"),
        (scipy.sparse.coo_array([1.0, 2.0]), "2 dimensions, got 1"),
    ],
)
def test_anything_else_is_refused_by_name(matrix: object, message: str) -> None:
    with pytest.raises(InvalidMatrix, match=message) as caught:
        to_scipy(matrix)
    assert caught.value.field == "matrix"


def test_tensors_that_are_no_real_sparse_matrix_are_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidMatrix, match="to_sparse"):
        to_scipy(torch.ones(2, 2))
    with pytest.raises(InvalidMatrix, match="2 dimensions, got 3"):
        to_scipy(torch.ones(2, 2, 2).to_sparse())
    with pytest.raises(InvalidMatrix, match="complex64"):
        to_scipy(torch.ones(2, 2, dtype=torch.complex64).to_sparse())


def test_a_torch_tensor_with_dense_dimensions_is_refused() -> None:
    torch = pytest.importorskip("torch")
    hybrid = torch.sparse_coo_tensor([[0, 1]], torch.ones(2, 3), (3, 3))
    with pytest.raises(InvalidMatrix, match="1 dense dimensions"):
        to_scipy(hybrid)
