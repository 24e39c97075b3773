"""Operators of the C library whose driver is the stand-in: kernels run on the PTX interpreter, in the host's memory."""

import atexit
import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse

from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.interpreter import Buffer, PtxModule, launch, load_module
from sparsesmith.elements import dtype_of
from sparsesmith.errors import InvalidProgram
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operator.directions import direction_of, transposed_matrix
from sparsesmith.operator.file import packed_sections
from sparsesmith.operator.image import Direction, as_bytes, support_cubin
from tests.artifacts.answers import make_workload

ON_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_uint,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
)
SCALARS: dict[str, Any] = {"f32": ctypes.c_float, "f64": ctypes.c_double, "u32": ctypes.c_int32}
NUM_SMS = 132
LAUNCH_OUT_OF_RESOURCES = 701
"""CUDA_ERROR_..."""


@cache
def ptx_of(source: str, architecture: str) -> bytes:
    """What the evaluator's toolchain makes of a source, for the interpreter."""
    built = _compiler().compile(source, architecture)
    if not isinstance(built, Compiled):
        raise InvalidProgram(built.log)
    return built.ptx.encode()


@cache
def _compiler() -> Compiler:
    """In a process of its own that finds no stand-in: NVRTC looks for the driver, too."""
    os.environ.pop("LD_LIBRARY_PATH", None)
    compiler = Compiler().__enter__()
    atexit.register(compiler.__exit__, None, None, None)
    return compiler


@cache
def _module(ptx: bytes) -> PtxModule:
    return load_module(ptx.decode())


@dataclass
class Launched:
    """What the driver was asked to launch."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    is_early: bool
    stream: int


@dataclass
class Driver:
    """The stand-in, with a record of its launches."""

    library: Any
    launched: list[Launched] = field(default_factory=list)
    most_parameters: int | None = None
    """A kernel that takes more is refused, as one that needs more registers than a block may have."""

    @staticmethod
    def open() -> "Driver":
        library = ctypes.CDLL("libcuda.so.1")
        library.stand_in_bytes.argtypes = [ctypes.c_size_t]
        library.stand_in_bytes.restype = ctypes.c_size_t
        library.cuMemFree_v2.argtypes = [ctypes.c_uint64]
        driver = Driver(library)
        driver._callback = ON_LAUNCH(driver._run)  # type: ignore[attr-defined]
        library.stand_in_on_launch(driver._callback)  # type: ignore[attr-defined]
        return driver

    def array(self, data: Any) -> "DeviceArray":
        """Memory of the device that holds a copy of it."""
        contiguous = np.ascontiguousarray(data)
        address = ctypes.c_uint64()
        assert self.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(contiguous.nbytes, 1))) == 0
        held = DeviceArray(self, address.value, contiguous.dtype, contiguous.shape)
        held.view[...] = contiguous
        return held

    def _run(
        self, image: bytes, name: bytes, grid: Any, block: Any, shared: int, is_early: int, stream: int, places: Any
    ) -> int:
        module, kernel = _module(image), name.decode()
        extents = tuple(grid[:3]), tuple(block[:3])
        if self.most_parameters is not None and len(module.kernels[kernel].parameters) > self.most_parameters:
            return LAUNCH_OUT_OF_RESOURCES
        self.launched.append(Launched(kernel, *extents, bool(is_early), stream or 0))
        given = self._arguments(module.kernels[kernel].parameters, places)
        report = launch(module, kernel, *extents, given, dynamic_shared_bytes=shared)
        assert report.finding is None, report.finding
        return 0

    def _arguments(self, parameters: Sequence[tuple[str, int]], places: Any) -> list[Any]:
        return [
            self._argument(kind, place) for (kind, _), place in zip(parameters, places[: len(parameters)], strict=True)
        ]

    def _argument(self, kind: str, place: int) -> Any:
        if kind in SCALARS:
            return SCALARS[kind].from_address(place).value
        word = ctypes.c_uint64.from_address(place).value
        num_bytes = self.library.stand_in_bytes(word)
        if not num_bytes:  # A count of 64 bits.
            return word
        array = np.frombuffer((ctypes.c_uint8 * num_bytes).from_address(word), np.uint8)
        return Buffer("buffer", array, writable=True)


@dataclass
class DeviceArray:
    driver: Driver
    address: int
    dtype: Any
    shape: tuple[int, ...]

    @property
    def view(self) -> Any:
        count = int(np.prod(self.shape))
        memory = (ctypes.c_uint8 * (count * self.dtype.itemsize)).from_address(self.address)
        return np.frombuffer(memory, self.dtype).reshape(self.shape)

    def free(self) -> None:
        self.driver.library.cuMemFree_v2(self.address)


def make_image(
    matrix: Any,
    program: str,
    *,
    transposed: str | None = None,
    is_shared: bool = False,
    without: Sequence[str] = (),
    changed: Callable[[dict[str, Any]], None] = lambda sections: None,
    **workload: Any,
) -> bytes:
    """As `Operator.save` writes it, with PTX for machine code. `transposed`: a program for A^T;
    `is_shared`: from A as it is stored."""
    direction = _direction(matrix, program, **workload)
    element_type = direction.problem.element_type
    values = matrix.data.astype(dtype_of(element_type))
    sections: dict[str, Any] = {
        "row_offsets": as_bytes(matrix.indptr.astype(np.int32)),
        "col_indices": as_bytes(matrix.indices.astype(np.int32)),
        "values": as_bytes(values),
        **direction.sections("sm_90", NUM_SMS, compiled=ptx_of),
        "support": support_cubin(element_type, "sm_90", ptx_of),
    }
    if transposed is not None:
        other, order = (matrix, None) if is_shared else transposed_matrix(matrix)
        workload |= {"operation": "spmv_t"} if is_shared else {}
        backward = _direction(other, transposed, order=order, **workload)
        sections |= backward.sections("sm_90", NUM_SMS, "T.", ptx_of)
    changed(sections)
    return packed_sections({name: content for name, content in sections.items() if name not in without})


def _direction(matrix: Any, text: str, order: Any = None, **workload: Any) -> Direction:
    return direction_of(matrix, make_workload(pattern_from_scipy(matrix), **workload), text, order=order)


def exact(matrix: Any, kind: Any) -> scipy.sparse.csr_matrix:
    """The matrix with values as the operator holds them, in float64."""
    values = matrix.data.astype(kind).astype(np.float64)
    return scipy.sparse.csr_matrix((values, matrix.indices, matrix.indptr), shape=matrix.shape)
