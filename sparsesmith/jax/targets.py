"""What XLA calls, built from sparsesmith_ffi.c with the system's C compiler against jaxlib's headers, and the operators
that it knows by their numbers."""

import ctypes
import weakref
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sparsesmith.errors import Unavailable
from sparsesmith.operator.native.build import cache_folder, compiled
from sparsesmith.operator.native.library import NativeOperator, library
from sparsesmith.operator.operator import Bound

PRODUCT = "sparsesmith_product"
"""The target's name: x, perhaps values; attributes handle and transposed."""

SOURCE = Path(__file__).parent / "sparsesmith_ffi.c"
NAME = "libsparsesmith_ffi.so"
_XLA_TYPES = {"float16": 10, "float32": 11, "float64": 12, "bfloat16": 16}
"""XLA_FFI_DataType."""


class Entry(ctypes.Structure):
    """Entry of sparsesmith_ffi.c."""

    _fields_ = (
        ("num_rows", ctypes.c_int64),
        ("num_cols", ctypes.c_int64),
        ("nnz", ctypes.c_int64),
        ("element", ctypes.c_int64),
        ("row_offsets", ctypes.c_void_p),
        ("col_indices", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("op", ctypes.c_void_p),
        ("changing_op", ctypes.c_void_p),
        ("apply", ctypes.c_void_p),
        ("apply_transposed", ctypes.c_void_p),
        ("update_values", ctypes.c_void_p),
        ("last_error", ctypes.c_void_p),
    )


@dataclass(eq=False)
class _Held:
    """What an entry points to."""

    entry: Entry
    arrays: list[Any]
    operators: list[NativeOperator] = field(default_factory=list)


_HELD: "weakref.WeakKeyDictionary[Bound, _Held]" = weakref.WeakKeyDictionary()


def ready(bound: Bound, *, with_values: bool) -> None:
    """XLA knows the operator from now on, as long as it lives. Raises Unavailable without a C compiler, on a GPU
    without CuPy."""
    targets, held = _targets(), _HELD.get(bound)
    if held is None:
        held = _HELD[bound] = _on_the_host(bound)
        weakref.finalize(bound, _forget, bound.handle, held)
        _put(targets, bound, held)
    if _has_gpu() and not (held.entry.changing_op if with_values else held.entry.op):
        made = NativeOperator(bound.native_image())
        held.operators.append(made)
        _point(held.entry, made, with_values)
        _put(targets, bound, held)


def _on_the_host(bound: Bound) -> _Held:
    matrix = bound.present_matrix()
    offsets, columns = matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32)
    arrays = [np.ascontiguousarray(array) for array in (offsets, columns, matrix.data)]
    element = _XLA_TYPES[bound.element_type]
    addresses = [array.ctypes.data for array in arrays]
    return _Held(Entry(*bound.extents, element, *addresses), arrays)


def _point(entry: Entry, made: NativeOperator, with_values: bool) -> None:
    setattr(entry, "changing_op" if with_values else "op", made.handle)
    for name in ("apply", "apply_transposed", "update_values", "last_error"):
        function = getattr(library(), f"sparsesmith_op_{name}")
        setattr(entry, name, ctypes.cast(function, ctypes.c_void_p).value)


def _put(targets: Any, bound: Bound, held: _Held) -> None:
    if targets.sparsesmith_ffi_put(bound.handle, ctypes.byref(held.entry)):
        raise Unavailable("no host memory")


def _forget(handle: int, held: _Held) -> None:
    """What is held may go when nothing of it is read any more."""
    _targets().sparsesmith_ffi_take_out(handle)
    held.operators.clear()


@cache
def _targets() -> Any:
    """The library, its targets known to XLA."""
    headers = Path(jax.ffi.include_dir())
    path = cache_folder((SOURCE, headers / "xla" / "ffi" / "api" / "c_api.h")) / NAME
    if not path.is_file():
        compiled(SOURCE, path, "-isystem", str(headers), "-lpthread")
    found: Any = ctypes.CDLL(str(path))
    found.sparsesmith_ffi_put.argtypes = [ctypes.c_int64, ctypes.c_void_p]
    found.sparsesmith_ffi_take_out.argtypes = [ctypes.c_int64]
    found.sparsesmith_ffi_take_out.restype = None
    jax.ffi.register_ffi_target(PRODUCT, jax.ffi.pycapsule(found.sparsesmith_ffi_on_the_host), platform="cpu")
    jax.ffi.register_ffi_target(PRODUCT, jax.ffi.pycapsule(found.sparsesmith_ffi_on_a_gpu), platform="CUDA")
    return found


@cache
def _has_gpu() -> bool:
    return any(device.platform == "gpu" for device in jax.devices())
