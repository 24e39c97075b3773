"""A PETSc matrix of type `python` whose products are an operator's, on vectors of the host and of CUDA."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from petsc4py import PETSc

from sparsesmith.artifacts.launcher import import_cupy
from sparsesmith.errors import InvalidInput
from sparsesmith.operator import Operator

Access = Literal["r", "w", "rw"]


def matrix(operator: Operator, comm: Any = None) -> Any:
    """A x, A^T x, sums with them and the diagonal, for vectors of the standard type; where the matrix's `setVecType`
    says `cuda`, in the GPU's memory, on CuPy's current stream.

    The operator's new values are the matrix's. `comm`: of one process, PETSc.COMM_SELF if none is given. Raises
    InvalidInput where PETSc was built for other numbers than the operator's, or `comm` has more processes.
    """
    if np.dtype(PETSc.ScalarType) != operator.dtype:
        scalars = np.dtype(PETSc.ScalarType).name
        raise InvalidInput(
            f"operator holds {operator.dtype}: this PETSc was built for {scalars}",
            field="operator",
            value=str(operator.dtype),
            limit=scalars,
        )
    comm = comm or PETSc.COMM_SELF
    if comm.getSize() != 1:
        raise InvalidInput(
            f"comm has {comm.getSize()} processes: an operator's matrix lies in one",
            field="comm",
            value=comm.getSize(),
            limit=1,
        )
    made = PETSc.Mat().createPython(operator.shape, context=OperatorContext(operator), comm=comm)
    made.setUp()
    return made


class OperatorContext:
    """What PETSc calls: see MATPYTHON in its manual. `mat` is the matrix that it belongs to."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def mult(self, mat: Any, x: Any, y: Any) -> None:
        """y = A x."""
        self._product(self.operator, x, y)

    def multTranspose(self, mat: Any, x: Any, y: Any) -> None:
        """y = A^T x."""
        self._product(self.operator.T, x, y)

    def multAdd(self, mat: Any, x: Any, v: Any, y: Any) -> None:
        """y = v + A x; v may be y."""
        self._sum(self.operator, x, v, y)

    def multTransposeAdd(self, mat: Any, x: Any, v: Any, y: Any) -> None:
        """y = v + A^T x; v may be y."""
        self._sum(self.operator.T, x, v, y)

    def getDiagonal(self, mat: Any, diagonal: Any) -> None:
        """For Jacobi's preconditioner."""
        diagonal.setArray(self.operator.to_scipy().diagonal())

    def view(self, mat: Any, viewer: Any) -> None:
        viewer.printfASCII(f"{self.operator!r}\n")

    def _product(self, operator: Operator, x: Any, y: Any) -> None:
        with _memory(x, "r", y) as given, _memory(y, "w", x) as result:
            operator.matvec(given, out=result)

    def _sum(self, operator: Operator, x: Any, v: Any, y: Any) -> None:
        if v.handle != y.handle:
            v.copy(y)
        with _memory(x, "r", y) as given, _memory(y, "rw", x) as result:
            operator.matvec(given, out=result, beta=1)


@contextmanager
def _memory(vector: Any, access: Access, other: Any) -> Iterator[Any]:
    """A vector as an array over its own memory: of CuPy where both lie on the GPU, else of NumPy."""
    if not (_is_of_cuda(vector) and _is_of_cuda(other)):
        yield vector.getArray(readonly=access == "r")
        return
    handle = vector.getCUDAHandle(access)
    try:
        yield _on_the_gpu(handle, vector.getLocalSize())
    finally:
        vector.restoreCUDAHandle(handle, access)


def _is_of_cuda(vector: Any) -> bool:
    return str(vector.getType()).endswith("cuda")


def _on_the_gpu(address: int, size: int) -> Any:
    cupy = import_cupy()
    element = np.dtype(PETSc.ScalarType)
    memory = cupy.cuda.UnownedMemory(address, max(size, 1) * element.itemsize, None)
    return cupy.ndarray(size, element, cupy.cuda.MemoryPointer(memory, 0))
