"""Products as a solver's loop makes them: the vector is written where the product reads it, the result lies where the next
step reads it. By the operator, by cupyx (without a GPU: SciPy) with its CSR, by one of the library's routines.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import scipy.sparse

from sparsesmith.artifacts.launcher import import_cupy
from sparsesmith.errors import Unavailable
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operator import Operator
from sparsesmith_proto.kernel import Workload


class Product(Protocol):
    """With one matrix, one way."""

    @property
    def given(self) -> Any:
        """Where the vector goes."""
        ...

    def run(self) -> Any:
        """The product; valid until the next."""
        ...


class Arrays:
    """Of a GPU where there is one, else of the host."""

    def __init__(self) -> None:
        try:
            cupy = import_cupy()
            cupy.cuda.runtime.getDeviceCount()
            self.module: Any = cupy
            self.is_on_gpu = True
        except Unavailable:
            self.module, self.is_on_gpu = np, False

    def us_a_step(self, loop: Callable[[int], None], steps: int, turns: int) -> float:
        """The least mean over a few turns, after one that counts for nothing."""
        loop(steps)
        return min(self._us(loop, steps) for _ in range(turns))

    def _us(self, loop: Callable[[int], None], steps: int) -> float:
        self._wait()
        started = time.perf_counter()
        loop(steps)
        self._wait()
        return (time.perf_counter() - started) / steps * 1e6

    def _wait(self) -> None:
        if self.is_on_gpu:
            self.module.cuda.runtime.deviceSynchronize()


class OperatorProduct:
    """By a tuned kernel."""

    def __init__(self, operator: Operator, arrays: Arrays) -> None:
        self._operator = operator
        rows, cols = operator.shape
        self.given = arrays.module.zeros(cols)
        self._found = arrays.module.zeros(rows)

    def run(self) -> Any:
        return self._operator.matvec(self.given, out=self._found)


class SparseProduct:
    """As users multiply who have nothing else: `A @ x`."""

    def __init__(self, matrix: scipy.sparse.csr_matrix, arrays: Arrays) -> None:
        self._matrix: Any = matrix
        if arrays.is_on_gpu:
            from cupyx.scipy.sparse import csr_matrix

            self._matrix = csr_matrix(matrix)
        self.given = arrays.module.zeros(matrix.shape[1])

    def run(self) -> Any:
        return self._matrix @ self.given


class Routines:
    """Those of cuSPARSE, as the evaluator calls them. On a GPU only."""

    def __init__(self) -> None:
        from services.evaluator.cuda.device import CudaDevice

        self._device = CudaDevice()

    def product(self, name: str, matrix: scipy.sparse.csr_matrix) -> Product:
        """Raises KeyError for one that the library does not have, CuSparseRefused."""
        from services.evaluator.cuda.library.baselines import DeviceMatrix, PreparedRoutine
        from services.evaluator.cuda.library.matrices import HostMatrices
        from services.evaluator.cuda.library.routines import BLOCK_SIZES, routines_for

        library, kernels = self._device.library, self._device.kernels
        routine = {each.name: each for each in routines_for("spmv", BLOCK_SIZES, has=library.has)}[name]
        pattern = pattern_from_scipy(matrix)
        on_device = DeviceMatrix(HostMatrices(pattern).get(routine.storage), pattern, "float64")
        on_device.fill(import_cupy().asarray(matrix.data), kernels)
        workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float64")
        prepared = PreparedRoutine(routine, on_device, library, workload, pattern.num_rows, kernels)
        return _RoutineProduct(prepared, matrix.shape, int(kernels.stream.ptr))


class _RoutineProduct:
    def __init__(self, prepared: Any, shape: tuple[int, int], stream: int) -> None:
        self._prepared, self._stream = prepared, stream
        self.given = prepared.given[: shape[1]]
        self._found = prepared.found[: shape[0]]

    def run(self) -> Any:
        self._prepared.enqueue(self._stream)
        return self._found
