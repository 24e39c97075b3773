"""Run a kernel program on the user's own GPU: CuPy, torch or NumPy arrays in and out.

CuPy is imported when a launcher is made, so that the client works without it.
"""

from typing import Any, Protocol

import numpy as np
import scipy.sparse

from sparsesmith.domain.formats.format import Argument
from sparsesmith.domain.pattern import pattern_from_scipy
from sparsesmith.domain.program import KernelProgram, parse_program, signature_of
from sparsesmith.errors import InvalidInput, InvalidMatrix, Unavailable
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType


class Launcher(Protocol):
    """Multiplies one matrix with dense operands."""

    def __call__(self, dense: Any) -> Any: ...

    def update_values(self, matrix: scipy.sparse.csr_matrix) -> None: ...


def program_launcher(program: str, matrix: scipy.sparse.csr_matrix, workload: Workload) -> Launcher:
    """A launcher of a kernel program, its format built from the matrix.

    Raises InvalidProgram, InvalidMatrix where the matrix has another pattern than the workload, Unavailable without CuPy.
    """
    parsed = parse_program(program, workload.operation, workload.element_type)
    return _ProgramLauncher(parsed, matrix, workload)


def library_launcher(matrix: scipy.sparse.csr_matrix, element_type: ElementType) -> Launcher:
    """A launcher of cuSPARSE through CuPy, for workloads where no program beat it."""
    return _LibraryLauncher(matrix, element_type)


class _ProgramLauncher:
    def __init__(self, program: KernelProgram, matrix: scipy.sparse.csr_matrix, workload: Workload) -> None:
        self._cupy = _import_cupy()
        self._workload = workload
        pattern = pattern_from_scipy(matrix)
        if pattern.digest != workload.pattern:
            raise InvalidMatrix(
                "the matrix has another pattern than the kernel was tuned for",
                field="pattern",
                value=pattern.digest,
                limit=workload.pattern,
            )
        self._pattern = pattern
        self._layout = program.format.build(pattern, program.parameters)
        module = self._cupy.RawModule(code=program.source, options=("-std=c++17",))
        num_sms = self._cupy.cuda.Device().attributes["MultiProcessorCount"]
        self._sizes = {
            "num_rows": pattern.num_rows,
            "num_cols": pattern.num_cols,
            "nnz": pattern.nnz,
            "num_dense_cols": workload.num_dense_cols,
            **self._layout.sizes,
        }
        launches = [launch.resolve({**self._sizes, "num_sms": num_sms}) for launch in program.launches]
        self._kernels = [(module.get_function(launch.kernel), launch) for launch in launches]
        for kernel, launch in self._kernels:
            kernel.max_dynamic_shared_size_bytes = launch.shared_bytes
        self._arguments = signature_of(program.format, program.parameters, workload.operation, workload.element_type)
        element = np.dtype(workload.element_type)
        self._arrays = {name: self._cupy.asarray(array) for name, array in self._layout.indices.items()}
        self._arrays |= {name: self._cupy.empty(size, element) for name, size in self._layout.scratch.items()}
        self.update_values(matrix)

    def update_values(self, matrix: scipy.sparse.csr_matrix) -> None:
        values = _values_for(self._pattern.col_indices, matrix, self._workload.element_type)
        self._arrays["values"] = self._cupy.asarray(self._layout.pack(values))

    def __call__(self, dense: Any) -> Any:
        operand = self._cupy.ascontiguousarray(self._cupy.asarray(dense), dtype=self._workload.element_type)
        expected = _operand_shape(self._pattern.num_cols, self._workload)
        if operand.shape != expected:
            raise InvalidInput(
                f"the dense operand has shape {operand.shape}: expected {expected}",
                field="dense",
                value=operand.shape,
                limit=expected,
            )
        result = self._cupy.empty((self._pattern.num_rows, *expected[1:]), operand.dtype)
        arguments = tuple(self._argument(argument, operand, result) for argument in self._arguments)
        for kernel, launch in self._kernels:
            kernel(launch.grid, launch.block, arguments, shared_mem=launch.shared_bytes)
        return _like(dense, result)

    def _argument(self, argument: Argument, operand: Any, result: Any) -> Any:
        match argument.role:
            case "size":
                return np.int32(self._sizes[argument.name])
            case "input":
                return operand
            case "output":
                return result
            case "index" | "values" | "scratch":
                return self._arrays[argument.name]


class _LibraryLauncher:
    def __init__(self, matrix: scipy.sparse.csr_matrix, element_type: ElementType) -> None:
        self._cupy = _import_cupy()
        self._element_type = element_type
        self.update_values(matrix)

    def update_values(self, matrix: scipy.sparse.csr_matrix) -> None:
        from cupyx.scipy.sparse import csr_matrix

        self._matrix = csr_matrix(matrix.astype(self._element_type))

    def __call__(self, dense: Any) -> Any:
        return _like(dense, self._matrix @ self._cupy.asarray(dense, dtype=self._element_type))


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise Unavailable("running a kernel needs CuPy: pip install cupy-cuda13x") from error
    try:
        available = cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        available = False
    if not available:
        raise Unavailable("running a kernel needs a CUDA device, and CuPy finds none")
    return cupy


def _values_for(
    col_indices: np.ndarray[Any, Any], matrix: scipy.sparse.csr_matrix, element_type: ElementType
) -> np.ndarray[Any, Any]:
    if matrix.nnz != col_indices.size or not np.array_equal(matrix.indices, col_indices):
        raise InvalidMatrix("the matrix has another pattern than the kernel was tuned for", field="matrix")
    return np.ascontiguousarray(matrix.data, dtype=element_type)


def _operand_shape(num_cols: int, workload: Workload) -> tuple[int, ...]:
    return (num_cols,) if workload.operation == "spmv" else (num_cols, workload.num_dense_cols)


def _like(given: Any, result: Any) -> Any:
    """`result` (CuPy) as the kind of array that was given."""
    module = type(given).__module__
    if module.startswith("torch"):
        import torch

        return torch.from_dlpack(result)
    return result.get() if isinstance(given, np.ndarray) else result
