"""libsparsesmith_op from Python, by ctypes."""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy.typing as npt

from sparsesmith.errors import InvalidInput, SparsesmithError, Unavailable
from sparsesmith.operator.arrays import Kind, check_apart
from sparsesmith.operator.backend import PLAIN, BoundProduct, Scale
from sparsesmith.operator.native.build import NAME, SOURCES, build, cache_folder

LIBRARY_VARIABLE = "SPARSESMITH_OP_LIBRARY"
"""Environment variable: the library's file; empty: none is used."""

ABI = 1
_INVALID_ARGUMENT, _BAD_FILE, _OTHER_ARCHITECTURE = 1, 2, 4
_PLAIN = ctypes.c_double(1), ctypes.c_double(0)
"""Alpha and beta as C takes them: to convert them takes longer than the rest of a call."""
_POINTER, _DOUBLE, _LONG = ctypes.c_void_p, ctypes.c_double, ctypes.c_int64


class Info(ctypes.Structure):
    """sparsesmith_op_info."""

    _fields_ = (
        ("num_rows", ctypes.c_int32),
        ("num_cols", ctypes.c_int32),
        ("nnz", ctypes.c_int32),
        ("num_dense_cols", ctypes.c_int32),
        ("element_bytes", ctypes.c_int32),
        ("has_transposed", ctypes.c_int32),
        ("has_scratch", ctypes.c_int32),
        ("is_scaled_in_place", ctypes.c_int32),
        ("device_bytes", ctypes.c_uint64),
    )


class Csr(ctypes.Structure):
    """sparsesmith_csr: addresses of the device."""

    _fields_ = (
        ("num_rows", ctypes.c_int32),
        ("num_cols", ctypes.c_int32),
        ("nnz", ctypes.c_int32),
        ("row_offsets", _POINTER),
        ("col_indices", _POINTER),
        ("values", _POINTER),
    )


class NativeOperator:
    """A sparsesmith_op. Everything that is handed in is an address on the device, and a stream by its handle."""

    def __init__(self, image: bytes, csr: Csr | None = None) -> None:
        """From a saved operator's bytes. Raises Unavailable without library, driver or GPU; InvalidInput for another
        architecture, or a matrix of another pattern."""
        self._library = library()
        self._handle = _POINTER()
        given = None if csr is None else ctypes.byref(csr)
        self.check(self._library.sparsesmith_op_create(image, len(image), given, ctypes.byref(self._handle)))
        self._apply = self._library.sparsesmith_op_apply
        self._apply_transposed = self._library.sparsesmith_op_apply_transposed

    def of_arrays(self, kind: Kind, stream: Callable[[], int], *, transposed: bool) -> BoundProduct:
        """The product of arrays on a GPU, of CuPy or torch, that are right but may overlap: InvalidInput then,
        and after `close`. On the stream whose handle is asked for in each call."""
        apply = self._apply_transposed if transposed else self._apply
        handle, check = self._handle, self.check

        def of_cupy(x: Any, out: Any, scale: Scale) -> Any:
            alpha, beta = _PLAIN if scale is PLAIN else (scale.alpha, scale.beta)
            if status := apply(handle, alpha, x.data.ptr, beta, out.data.ptr, stream()):
                check_apart(out, x)
                check(status)
            return out

        def of_torch(x: Any, out: Any, scale: Scale) -> Any:
            alpha, beta = _PLAIN if scale is PLAIN else (scale.alpha, scale.beta)
            if status := apply(handle, alpha, x.data_ptr(), beta, out.data_ptr(), stream()):
                check_apart(out, x)
                check(status)
            return out

        return of_torch if kind == "torch" else of_cupy

    def apply(self, x: int, y: int, stream: int, alpha: float = 1.0, beta: float = 0.0) -> None:
        """y = alpha A x + beta y."""
        if status := self._apply(self._handle, alpha, x, beta, y, stream):
            self._raise(status)

    def apply_transposed(self, x: int, y: int, stream: int, alpha: float = 1.0, beta: float = 0.0) -> None:
        """y = alpha A^T x + beta y."""
        if status := self._apply_transposed(self._handle, alpha, x, beta, y, stream):
            self._raise(status)

    def update_values(self, values: int, num_values: int, stream: int) -> None:
        """Values of all nonzeros in the order of CSR."""
        self.check(self._library.sparsesmith_op_update_values(self._handle, values, num_values, stream))

    def read_values(self, into: npt.NDArray[Any]) -> None:
        """The present values, to an array of the host."""
        self.check(self._library.sparsesmith_op_read_values(self._handle, into.ctypes.data, into.size))

    @property
    def handle(self) -> int:
        """The sparsesmith_op's address; for as long as this object lives."""
        return int(self._handle.value or 0)

    @property
    def info(self) -> Info:
        info = Info()
        self.check(self._library.sparsesmith_op_describe(self._handle, ctypes.byref(info)))
        return info

    def close(self) -> None:
        address, self._handle.value = self._handle.value, None
        self._library.sparsesmith_op_destroy(address)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def check(self, status: int) -> None:
        """Raises InvalidInput or Unavailable, in the library's words, unless it is 0."""
        if status:
            self._raise(status)

    def _raise(self, status: int) -> NoReturn:
        words = self._library.sparsesmith_op_last_error().decode(errors="replace")
        kinds: dict[int, type[SparsesmithError]] = {
            _INVALID_ARGUMENT: InvalidInput,
            _BAD_FILE: InvalidInput,
            _OTHER_ARCHITECTURE: InvalidInput,
        }
        raise kinds.get(status, Unavailable)(words, field=words.partition(" ")[0])


@cache
def library() -> Any:
    """The library: the one that the environment names, else one that lies beside its sources (a wheel's), else one in
    the user's cache, built there if need be. Raises Unavailable."""
    path = _library_path()
    try:
        found: Any = ctypes.CDLL(str(path))
    except OSError as error:
        raise Unavailable(f"libsparsesmith_op cannot be loaded: {error}") from error
    if found.sparsesmith_op_abi() != ABI:
        raise Unavailable(f"{path} is of another release", value=found.sparsesmith_op_abi(), limit=ABI)
    _declare(found)
    return found


def _library_path() -> Path:
    named = os.environ.get(LIBRARY_VARIABLE)
    if named is not None:
        if not named:
            raise Unavailable(f"{LIBRARY_VARIABLE} says that no libsparsesmith_op is used")
        return Path(named)
    for folder in (SOURCES, cache_folder()):
        if (folder / NAME).is_file():
            return folder / NAME
    return build(cache_folder())


def _declare(found: Any) -> None:
    product = [_POINTER, _DOUBLE, _POINTER, _DOUBLE, _POINTER, _POINTER]
    arguments = {
        "create": [ctypes.c_char_p, ctypes.c_size_t, _POINTER, _POINTER],
        "apply": product,
        "apply_transposed": product,
        "update_values": [_POINTER, _POINTER, _LONG, _POINTER],
        "read_values": [_POINTER, _POINTER, _LONG],
        "describe": [_POINTER, _POINTER],
        "destroy": [_POINTER],
    }
    for name, types in arguments.items():
        getattr(found, f"sparsesmith_op_{name}").argtypes = types
    found.sparsesmith_op_destroy.restype = None
    found.sparsesmith_op_last_error.restype = ctypes.c_char_p
