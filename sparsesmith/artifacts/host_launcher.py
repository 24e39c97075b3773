"""The same product without a GPU: SciPy on the host, for trying out what will run on a GPU elsewhere."""

from typing import Any

import numpy as np
import scipy.sparse

from sparsesmith.artifacts.launcher import (
    Launcher,
    dense_shape,
    is_torch,
    shaped_operand,
    sum_type,
    tensor_of,
    values_of,
)
from sparsesmith.elements import dtype_of
from sparsesmith.errors import Unavailable
from sparsesmith_proto.kernel import Workload

PRODUCTS = ("spmv", "spmm")


def host_launcher(matrix: scipy.sparse.csr_matrix, workload: Workload) -> Launcher:
    """A launcher of SciPy, in the workload's element type. Raises Unavailable for what is no product with A."""
    if workload.operation not in PRODUCTS:
        raise Unavailable(
            f"without CuPy and a GPU only {' and '.join(PRODUCTS)} are computed",
            field="operation",
            value=workload.operation,
        )
    return _HostLauncher(matrix, workload)


class _HostLauncher:
    def __init__(self, matrix: scipy.sparse.csr_matrix, workload: Workload) -> None:
        self._workload = workload
        self.update_values(matrix)

    def update_values(self, matrix: scipy.sparse.csr_matrix) -> None:
        values = values_of(matrix, self._workload.element_type).astype(sum_type(self._workload.element_type))
        self._matrix = scipy.sparse.csr_matrix((values, matrix.indices, matrix.indptr), shape=matrix.shape)

    def __call__(self, dense: Any) -> Any:
        element_type = self._workload.element_type
        given = shaped_operand(dense, dense_shape(self._matrix.shape, self._workload), element_type)
        operand = np.asarray(given, dtype_of(element_type)).astype(sum_type(element_type), copy=False)
        result = (self._matrix @ operand).astype(dtype_of(element_type), copy=False)
        return tensor_of(result) if is_torch(dense) else result
