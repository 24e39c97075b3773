"""A program on a matrix behind the C library: products by addresses, arguments bound beforehand."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.artifacts.launcher import current_architecture, import_cupy, num_multiprocessors, values_of
from sparsesmith.cuda.nvrtc import NvrtcNotFound
from sparsesmith.elements import dtype_of
from sparsesmith.errors import Unavailable
from sparsesmith.operator.arrays import Kind
from sparsesmith.operator.backend import PLAIN, BoundProduct, Scale
from sparsesmith.operator.directions import Order, direction_of
from sparsesmith.operator.file import packed_sections
from sparsesmith.operator.image import as_bytes, support_cubin
from sparsesmith.operator.native.library import NativeOperator, library
from sparsesmith.operator.parts import Parts
from sparsesmith_proto.kernel import Workload

_SLOWER = "products run through CuPy, where a call costs the host several times as much: %s"

_log = logging.getLogger(__name__)

Kernel = tuple[Workload, str]
"""What is computed, and the program."""


class NativeProducts:
    """Implements backend.OneWay, and scales on the way."""

    _is_transposed = False

    def __init__(self, operator: NativeOperator, workload: Workload, nnz: int) -> None:
        self._operator = operator
        self._cupy = import_cupy()
        self._workload = workload
        self._nnz = nnz

    def scaled(self, x: int, y: int, stream: int, scale: Scale) -> None:
        """y = alpha A x + beta y: addresses of arrays of the workload's shapes, and a stream's handle."""
        apply = self._operator.apply_transposed if self._is_transposed else self._operator.apply
        apply(x, y, stream, scale.alpha, scale.beta)

    def of_arrays(self, kind: Kind, stream: Callable[[], int]) -> BoundProduct:
        """`scaled` of arrays of CuPy or torch, on the stream whose handle is asked for in each call."""
        return self._operator.of_arrays(kind, stream, transposed=self._is_transposed)

    def multiply(self, operand: Any, result: Any) -> None:
        """See OneWay.multiply."""
        self.scaled(operand.data.ptr, result.data.ptr, self._stream(), PLAIN)

    def set_values(self, values: Any) -> None:
        """See OneWay.set_values: those of A, where it is A^T that is multiplied with."""
        self._operator.update_values(values.data.ptr, int(values.size), self._stream())

    def values(self) -> npt.NDArray[Any]:
        """See OneWay.values."""
        found = np.empty(self._nnz, dtype_of(self._workload.element_type))
        self._operator.read_values(found)
        return found

    @property
    def device_bytes(self) -> int:
        """See OneWay.device_bytes."""
        return int(self._operator.info.device_bytes)

    def _stream(self) -> int:
        return int(self._cupy.cuda.get_current_stream().ptr)


class SharedProducts(NativeProducts):
    """Products with A^T by an operator that holds both directions, one copy of what both read."""

    _is_transposed = True

    def set_values(self, values: Any) -> None:
        """They reach both where A gets them."""

    @property
    def device_bytes(self) -> int:
        """Counted with A's."""
        return 0


def shared_products(
    matrix: scipy.sparse.csr_matrix, forward: Kernel, backward: Kernel, parts: Parts
) -> tuple[NativeProducts, SharedProducts] | None:
    """Products with A, and with A^T from A as it is stored; None as `native_products`. Raises InvalidProgram."""
    try:
        library()
        import_cupy().cuda.runtime.deviceSynchronize()  # Its context is the current one from here on.
        operator = NativeOperator(packed_sections(_sections(matrix, forward, parts, None) | _turned(matrix, backward)))
    except (Unavailable, NvrtcNotFound) as error:
        _log.warning(_SLOWER, error)
        return None
    nnz = int(matrix.nnz)
    return NativeProducts(operator, forward[0], nnz), SharedProducts(operator, backward[0], nnz)


def native_products(
    matrix: scipy.sparse.csr_matrix,
    workload: Workload,
    program: str,
    parts: Parts,
    order: Order | None = None,
) -> NativeProducts | None:
    """On the current device; None where there is no library, no compiler for what is not compiled yet, or no driver.

    `order`: of A^T, for each of its nonzeros the place of its value among those of A. Raises InvalidProgram.
    """
    try:
        library()
        import_cupy().cuda.runtime.deviceSynchronize()  # Its context is the current one from here on.
        image = packed_sections(_sections(matrix, (workload, program), parts, order))
        return NativeProducts(NativeOperator(image), workload, int(matrix.nnz))
    except (Unavailable, NvrtcNotFound) as error:
        _log.warning(_SLOWER, error)
        return None


def _sections(
    matrix: scipy.sparse.csr_matrix, kernel: Kernel, parts: Parts, order: Order | None
) -> dict[str, bytes | memoryview]:
    workload, text = kernel
    architecture, stored = current_architecture(), values_of(matrix, workload.element_type)
    if architecture is None:
        raise Unavailable("there is no GPU")
    known = parts if parts.architecture == architecture else replace(parts, cubin=b"")
    direction = direction_of(matrix, workload, text, known, order)
    return {
        **direction.sections(architecture, num_multiprocessors()),
        "support": support_cubin(workload.element_type, architecture),
        "values": as_bytes(stored if order is None else _put_back(stored, order)),
    }


def _turned(matrix: scipy.sparse.csr_matrix, kernel: Kernel) -> dict[str, bytes | memoryview]:
    """Of A^T, from A as it is stored."""
    architecture = current_architecture()
    if architecture is None:
        raise Unavailable("there is no GPU")
    return direction_of(matrix, *kernel).sections(architecture, num_multiprocessors(), "T.")


def _put_back(values: npt.NDArray[Any], order: Order) -> npt.NDArray[Any]:
    """Values of A^T in the order of A."""
    found = np.empty_like(values)
    found[order] = values
    return found
