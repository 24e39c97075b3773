"""Any sparse matrix a Python user has, as SciPy CSR on the host. CuPy and torch are recognised, never imported."""

from typing import Any

import scipy.sparse

from sparsesmith.errors import InvalidMatrix

SparseMatrix = Any
"""A SciPy sparse matrix or array, a cupyx.scipy.sparse matrix, or a torch sparse tensor (COO, CSR, CSC, BSR, BSC)."""


def to_scipy(matrix: SparseMatrix) -> scipy.sparse.csr_matrix:
    """A copy of the matrix as SciPy CSR, indices sorted and duplicates added up; explicit zeros stay.

    Raises InvalidMatrix for anything else: dense arrays, complex numbers, other than two dimensions.
    """
    if scipy.sparse.issparse(matrix):
        host = matrix
    elif type(matrix).__module__.startswith("cupyx."):
        host = matrix.get()
    elif type(matrix).__module__.startswith("torch") and hasattr(matrix, "to_sparse_coo"):
        host = _from_torch(matrix)
    else:
        name = type(matrix).__name__
        raise InvalidMatrix(
            f"expected a SciPy, CuPy or torch sparse matrix, got {name}", field="matrix", value=name, limit="sparse"
        )
    _check(host.ndim, str(host.dtype), is_real=host.dtype.kind in "biuf")
    csr = scipy.sparse.csr_matrix(host, copy=True)
    csr.has_sorted_indices = csr.has_canonical_format = False  # What SciPy remembers may be out of date.
    csr.sum_duplicates()
    return csr


def _from_torch(tensor: Any) -> scipy.sparse.coo_matrix:
    if str(tensor.layout) == "torch.strided":
        raise InvalidMatrix(
            "expected a sparse tensor, got a dense one: use tensor.to_sparse()", field="matrix", value="torch.strided"
        )
    _check(tensor.ndim, str(tensor.dtype), is_real=not tensor.is_complex())
    coo = tensor.detach().to_sparse_coo().coalesce().cpu()
    if coo.dense_dim():
        raise InvalidMatrix(
            f"expected a number at each nonzero, got {coo.dense_dim()} dense dimensions (a hybrid tensor)",
            field="matrix",
            value=coo.dense_dim(),
            limit=0,
        )
    values = coo.values()
    if values.is_floating_point() and values.element_size() < 4:  # SciPy has no such types.
        values = values.float()
    rows, cols = coo.indices().numpy()
    return scipy.sparse.coo_matrix((values.numpy(), (rows, cols)), shape=tuple(coo.shape))


def _check(num_dimensions: int, element_type: str, is_real: bool) -> None:
    if num_dimensions != 2:
        raise InvalidMatrix(
            f"expected a matrix of 2 dimensions, got {num_dimensions}", field="matrix", value=num_dimensions, limit=2
        )
    if not is_real:
        raise InvalidMatrix(
            f"expected real numbers, got {element_type}", field="matrix", value=element_type, limit="real numbers"
        )
