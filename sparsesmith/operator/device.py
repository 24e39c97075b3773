"""Products on a GPU, through CuPy: the tuned kernel or the vendor's library for A, a plain kernel for A^T.

What a call does is put on the current stream of x's kind (torch's for tensors on the GPU, else CuPy's); nothing waits.
With `out` on the GPU a plain product allocates nothing once the first of its direction was made.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.artifacts.launcher import (
    Launcher,
    device_operand,
    import_cupy,
    library_launcher,
    like,
    program_launcher,
    stream_of,
    values_of,
)
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import operation_named
from sparsesmith.operations.texts import programs_for
from sparsesmith.operator.backend import Scale
from sparsesmith.operator.parts import Parts
from sparsesmith_proto.kernel import Workload


class DeviceBackend:
    """Implements Backend, on the device that is current when it is made. Raises Unavailable without CuPy or a GPU."""

    def __init__(self, matrix: scipy.sparse.csr_matrix, workload: Workload, program: str | None, parts: Parts) -> None:
        self._cupy = import_cupy()
        self._device = self._cupy.cuda.Device()
        self._workload = workload
        self._matrix = matrix
        self._forward = _launcher(matrix, workload, program, parts)

    def product(self, x: Any, out: Any, scale: Scale, *, transposed: bool) -> Any:
        """See Backend.product."""
        launcher = self._backward[0] if transposed else self._forward
        num_results = self._matrix.shape[1 if transposed else 0]
        with self._device, stream_of(x, self._cupy):
            operand = device_operand(x, self._cupy, tuple(x.shape), self._workload.element_type)
            result = None if out is None or not _is_on_a_gpu(out) else self._cupy.asarray(out)
            if result is not None and scale.is_plain:
                self._multiply(launcher, operand, result)
                return out
            found = self._cupy.empty((num_results, *operand.shape[1:]), operand.dtype)
            self._multiply(launcher, operand, found)
            found *= operand.dtype.type(scale.alpha)
            return like(x, found) if out is None else self._add(found, out, result, scale)

    def set_values(self, values: Any) -> None:
        """See Backend.set_values. In place: a captured graph multiplies with the new ones."""
        with self._device, stream_of(values, self._cupy):
            ordered = device_operand(values, self._cupy, tuple(values.shape), self._workload.element_type)
            self._forward.set_values(ordered)
            if "_backward" in self.__dict__:
                launcher, order = self._backward
                launcher.set_values(ordered[order])

    def values(self) -> npt.NDArray[np.floating[Any]]:
        """See Backend.values."""
        return self._forward.values()

    @property
    def device_bytes(self) -> int:
        """See Backend.device_bytes."""
        backward = self._backward[0].device_bytes if "_backward" in self.__dict__ else 0
        return self._forward.device_bytes + backward

    @cached_property
    def _backward(self) -> tuple[Launcher, Any]:
        """A^T and where its values stand among those of A; made when it is first asked for: nobody has tuned it."""
        matrix = self._matrix.copy()
        matrix.data = self.values() if self._workload.values is None else values_of(matrix, self._workload.element_type)
        transpose, order = transposed_matrix(matrix)
        workload = self._workload.model_copy(
            update={"pattern": pattern_from_scipy(transpose).digest, "values": None}, deep=True
        )
        program = next(iter(programs_for(operation_named(workload.operation), workload.element_type).values()))
        with self._device:
            return program_launcher(program, transpose, workload), self._cupy.asarray(order)

    def _multiply(self, launcher: Launcher, operand: Any, result: Any) -> None:
        """Of as many columns as there are, with a kernel for `num_dense_cols` of them."""
        columns = self._workload.num_dense_cols
        if self._workload.operation == "spmv":
            self._by_vectors(launcher.multiply, operand, result)
        elif operand.ndim == 2 and operand.shape[1] == columns:
            launcher.multiply(operand, result)
        else:
            self._by_blocks(launcher.multiply, operand, result, columns)

    def _by_vectors(self, multiply: Callable[[Any, Any], None], operand: Any, result: Any) -> None:
        if operand.size == operand.shape[0]:
            multiply(operand.reshape(-1), result.reshape(-1))
            return
        rows = self._cupy.empty(result.shape[::-1], result.dtype)
        for column, row in zip(self._cupy.ascontiguousarray(operand.T), rows, strict=True):
            multiply(column, row)
        result[...] = rows.T

    def _by_blocks(self, multiply: Callable[[Any, Any], None], operand: Any, result: Any, columns: int) -> None:
        """Blocks of `columns` columns; the last is filled up with zeros."""
        wide, found = operand.reshape(operand.shape[0], -1), result.reshape(result.shape[0], -1)
        for start in range(0, wide.shape[1], columns):
            part = wide[:, start : start + columns]
            block = self._cupy.zeros((wide.shape[0], columns), wide.dtype)
            block[:, : part.shape[1]] = part
            product = self._cupy.empty((found.shape[0], columns), found.dtype)
            multiply(block, product)
            found[:, start : start + columns] = product[:, : part.shape[1]]

    def _add(self, found: Any, out: Any, result: Any, scale: Scale) -> Any:
        """`out` = found + beta `out`, wherever it lies."""
        target = self._cupy.asarray(out) if result is None else result
        if scale.beta:
            found += found.dtype.type(scale.beta) * target
        if result is not None:
            result[...] = found
        elif isinstance(out, np.ndarray):
            found.get(out=out)
        else:
            out.copy_(like(out, found))
        return out


def transposed_matrix(
    matrix: scipy.sparse.csr_matrix,
) -> tuple[scipy.sparse.csr_matrix, npt.NDArray[np.integer[Any]]]:
    """A^T in CSR, and for each of its nonzeros the place of its value among those of A."""
    numbered = scipy.sparse.csr_matrix((np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    places = numbered.T.tocsr()
    places.sort_indices()
    order = places.data
    return scipy.sparse.csr_matrix((matrix.data[order], places.indices, places.indptr), shape=places.shape), order


def _launcher(matrix: scipy.sparse.csr_matrix, workload: Workload, program: str | None, parts: Parts) -> Launcher:
    if program is None:
        return library_launcher(matrix, workload)
    return program_launcher(program, matrix, workload, layout=parts.layout, cubin=parts.cubin)


def _is_on_a_gpu(array: Any) -> bool:
    return bool(getattr(array, "is_cuda", False)) or type(array).__module__.startswith("cupy")
