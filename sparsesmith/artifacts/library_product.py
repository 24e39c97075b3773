"""One of cuSPARSE's routines on a user's GPU, called as the evaluator called it: workspace and preprocessing made once,
the result written where the caller wants it.
"""

import logging
from functools import cache
from threading import Lock
from typing import Any

import numpy as np

from sparsesmith.cuda.cusparse import (
    CuSparse,
    CuSparseRefused,
    Descriptor,
    Form,
    MatrixShape,
    Product,
    coo,
    csr,
    dense_matrix,
    dense_vector,
    move_dense,
)
from sparsesmith.cuda.routines import Routine, callable_routines, default_routine
from sparsesmith.elements import WIDE_TYPES, dtype_of
from sparsesmith.errors import Unavailable
from sparsesmith.matrix.pattern import Pattern
from sparsesmith_proto.kernel import Workload

_log = logging.getLogger(__name__)


class LibraryProduct:
    """A x, of one matrix on the current device. The routine's workspace is one: on two streams at once products must
    follow one another."""

    def __init__(self, cupy: Any, pattern: Pattern, values: Any, workload: Workload, name: str | None) -> None:
        """`values`: on the device, in CSR order; read anew in each product. `name`: the routine; the default one where
        it is None, cannot be called or is refused by the library that is here (but for 16-bit numbers, of which not
        every routine is right). Raises Unavailable."""
        self._workload = workload
        self._rows = pattern.num_rows
        self._values = values
        self._library, self._lock = _library(cupy.cuda.runtime.getDevice())
        asked = _routine(workload, name)
        default = _routine(workload, None)
        with self._lock:
            try:
                self._prepare(cupy, pattern, asked)
            except CuSparseRefused as error:
                if asked == default or workload.element_type not in WIDE_TYPES:
                    raise Unavailable(f"{asked.name}: {error.message}") from error
                _log.warning("%s instead of %s, which this cuSPARSE refuses: %s", default.name, asked.name, error)
                try:
                    self._prepare(cupy, pattern, default)
                except CuSparseRefused as refused:
                    raise Unavailable(f"{default.name}: {refused.message}") from refused

    def _prepare(self, cupy: Any, pattern: Pattern, routine: Routine) -> None:
        self.routine = routine.name
        """That runs."""
        workload, library = self._workload, self._library
        major = pattern.row_offsets if routine.storage.kind == "csr" else pattern.row_indices()
        self._indices = tuple(cupy.asarray(np.asarray(array, np.int32)) for array in (major, pattern.col_indices))
        majors, columns_at, values_at = (int(array.data.ptr) for array in (*self._indices, self._values))
        shape = MatrixShape(pattern.num_rows, pattern.num_cols, pattern.nnz)
        describe = csr if routine.storage.kind == "csr" else coo
        # Preprocessing is told of operands, too, and reads none of them; products are at other addresses.
        extents, columns = (pattern.num_cols, pattern.num_rows), workload.num_dense_cols
        operands = [cupy.zeros(max(1, extent * columns), dtype_of(workload.element_type)) for extent in extents]
        self._given, self._found = (
            self._dense(extent, int(operand.data.ptr)) for extent, operand in zip(extents, operands, strict=True)
        )
        stream = cupy.cuda.get_current_stream()
        library.use(stream.ptr)
        matrix = describe(library, shape, majors, columns_at, values_at, workload.element_type)
        form = Form(workload.element_type)
        self._call = Product(library, workload.operation, matrix, self._given, self._found, routine.algorithm, form)
        stream.synchronize()

    def _dense(self, extent: int, address: int) -> Descriptor:
        workload = self._workload
        if workload.operation == "spmv":
            return dense_vector(self._library, extent, address, workload.element_type)
        return dense_matrix(self._library, extent, workload.num_dense_cols, address, workload.element_type)

    def enqueue(self, x: int, y: int, stream: int) -> None:
        """y = A x: addresses of contiguous arrays of the workload's shapes, rows first, and a stream's handle. Raises
        Unavailable in the library's words."""
        with self._lock:
            try:
                self._library.use(stream)
                move_dense(self._library, self._workload.operation, self._given, x)
                move_dense(self._library, self._workload.operation, self._found, y)
                self._call.enqueue(stream)
            except CuSparseRefused as error:
                raise Unavailable(f"{self.routine}: {error.message}") from error

    @property
    def device_bytes(self) -> int:
        """Of what it holds beside the values."""
        return sum(int(array.nbytes) for array in self._indices) + self._call.workspace_bytes


def _routine(workload: Workload, name: str | None) -> Routine:
    known = {each.name: each for each in callable_routines(workload.operation, deterministic=workload.deterministic)}
    default = default_routine(workload.operation, deterministic=workload.deterministic)
    return known[default if name not in known else name]


@cache
def _library(device: int) -> tuple[CuSparse, Lock]:
    """Of the current device, with what guards its handle's stream. Raises Unavailable."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError
    except ImportError as error:
        raise Unavailable("cuSPARSE is found by cuda-pathfinder, which comes with CuPy 14") from error
    try:
        return CuSparse(0), Lock()
    except (CuSparseRefused, DynamicLibNotFoundError, OSError) as error:
        raise Unavailable(f"cuSPARSE: {error}") from error
