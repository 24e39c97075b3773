"""Any sparse matrix a Python user has, as a SciPy CSR matrix on the host. CuPy and torch are recognised, never imported."""

from typing import Any

import scipy.sparse

from sparsesmith.errors import InvalidMatrix

SparseMatrix = Any
"""A SciPy sparse matrix or array, a cupyx.scipy.sparse matrix, or a torch sparse tensor (COO, CSR, CSC, BSR)."""


def to_scipy(matrix: SparseMatrix) -> scipy.sparse.csr_matrix:
    """The matrix as SciPy CSR with sorted indices and merged duplicates; a copy where it must be, shape kept.

    Raises InvalidMatrix for anything else, dense arrays included.
    """
    if scipy.sparse.issparse(matrix):
        host = matrix
    elif type(matrix).__module__.startswith("cupyx."):
        host = matrix.get()
    elif type(matrix).__module__.startswith("torch") and hasattr(matrix, "to_sparse_coo"):
        host = _from_torch(matrix)
    else:
        raise InvalidMatrix(
            f"expected a SciPy, CuPy or torch sparse matrix, got {type(matrix).__name__}",
            field="matrix",
            value=type(matrix).__name__,
        )
    if host.ndim != 2:
        raise InvalidMatrix(f"expected a matrix of 2 dimensions, got {host.ndim}", field="matrix", value=host.ndim, limit=2)
    csr = scipy.sparse.csr_matrix(host)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def _from_torch(tensor: Any) -> scipy.sparse.coo_matrix:
    if tensor.layout.__repr__() == "torch.strided":
        raise InvalidMatrix(
            "expected a sparse tensor, got a dense one: use tensor.to_sparse()", field="matrix", value="torch.strided"
        )
    coo = tensor.detach().to_sparse_coo().coalesce().cpu()
    rows, cols = coo.indices().numpy()
    return scipy.sparse.coo_matrix((coo.values().numpy(), (rows, cols)), shape=tuple(coo.shape))
