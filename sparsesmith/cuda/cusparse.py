"""cuSPARSE's generic API through ctypes: SpMV and SpMM on CSR, COO, Sliced-ELL, BSR and Blocked-ELL, with their
preprocessing; from 12.9 on also SpMVOp, a plan for one matrix, and SpMVGeneric, which takes half of a symmetric matrix.

Only what the baselines and an operator need. Enumerators are those of cusparse.h 12.x. Every call goes to the stream
given at the start, or last; scalars are read from host memory at the call, so the calls can be captured into a graph.
What a library does not have is found by its symbols: an older one still serves.
"""

import ctypes
import logging
from dataclasses import dataclass
from typing import Any, Protocol

from sparsesmith.elements import ELEMENTS
from sparsesmith.errors import SparsesmithError
from sparsesmith_proto.message import ElementType, Operation

_Pointer = ctypes.c_void_p
_Int = ctypes.c_int
_Int64 = ctypes.c_int64

_INDEX_32I = 2
_INDEX_BASE_ZERO = 0
_NON_TRANSPOSE, _TRANSPOSE = 0, 1  # cusparseOperation_t
_ORDER_ROW = 2
# CUDA_R_32F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16BF
_DATA_TYPES: dict[ElementType, int] = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
_SCALARS: dict[ElementType, type[ctypes.c_float] | type[ctypes.c_double]] = {
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}

MIN_BUFFER_BYTES = 256
NEW_CALLS_SINCE = (12, 9)
"""Before that release SpMVOp had no algorithms, under the same symbols."""
_ATTRIBUTE_STORAGE, _ATTRIBUTE_SYMMETRY = 2, 3  # cusparseSpMatAttribute_t, since 12.9
_STORE_LOWER, _SYMMETRIC = 1, 1  # cusparseSpMatStorage_t, cusparseSymmetryType_t
_PARAM_OPERATION, _PARAM_ALGORITHM, _PARAM_BUFFER = 0, 1, 2  # cusparseApiParam_t

_log = logging.getLogger(__name__)


class CuSparseRefused(SparsesmithError):
    """cuSPARSE answered a call with a status other than success: not supported, or not for this matrix."""


_MATRIX = [ctypes.POINTER(_Pointer)]
_PRODUCT = [_Pointer, _Int, _Pointer, _Pointer, _Pointer, _Pointer, _Pointer, _Int, _Int]
_DENSE_PRODUCT = [_Pointer, _Int, _Int, _Pointer, _Pointer, _Pointer, _Pointer, _Pointer, _Int, _Int]
_PLANNED: list[type] = [_Pointer, _Int, *[_Pointer] * 4, _Int, _Int]
_GENERIC: list[type] = [*[_Pointer] * 7, _Int, _Pointer]
_SIGNATURES: dict[str, list[type]] = {
    "cusparseCreate": [ctypes.POINTER(_Pointer)],
    "cusparseDestroy": [_Pointer],
    "cusparseGetProperty": [_Int, ctypes.POINTER(_Int)],
    "cusparseSetStream": [_Pointer, _Pointer],
    "cusparseDnVecSetValues": [_Pointer, _Pointer],
    "cusparseDnMatSetValues": [_Pointer, _Pointer],
    "cusparseDestroySpMat": [_Pointer],
    "cusparseDestroyDnVec": [_Pointer],
    "cusparseDestroyDnMat": [_Pointer],
    "cusparseCreateCsr": [*_MATRIX, *[_Int64] * 3, *[_Pointer] * 3, *[_Int] * 4],
    "cusparseCreateCoo": [*_MATRIX, *[_Int64] * 3, *[_Pointer] * 3, *[_Int] * 3],
    "cusparseCreateSlicedEll": [*_MATRIX, *[_Int64] * 5, *[_Pointer] * 3, *[_Int] * 4],
    "cusparseCreateBsr": [*_MATRIX, *[_Int64] * 5, *[_Pointer] * 3, *[_Int] * 5],
    "cusparseCreateBlockedEll": [*_MATRIX, *[_Int64] * 4, *[_Pointer] * 2, *[_Int] * 3],
    "cusparseSpMatSetAttribute": [_Pointer, _Int, _Pointer, ctypes.c_size_t],
    "cusparseCreateDnVec": [*_MATRIX, _Int64, _Pointer, _Int],
    "cusparseCreateDnMat": [*_MATRIX, *[_Int64] * 3, _Pointer, _Int, _Int],
    "cusparseSpMV_bufferSize": [*_PRODUCT, ctypes.POINTER(ctypes.c_size_t)],
    "cusparseSpMV_preprocess": [*_PRODUCT, _Pointer],
    "cusparseSpMV": [*_PRODUCT, _Pointer],
    "cusparseSpMM_bufferSize": [*_DENSE_PRODUCT, ctypes.POINTER(ctypes.c_size_t)],
    "cusparseSpMM_preprocess": [*_DENSE_PRODUCT, _Pointer],
    "cusparseSpMM": [*_DENSE_PRODUCT, _Pointer],
    "cusparseSpMVOp_bufferSize": [*_PLANNED, ctypes.POINTER(ctypes.c_size_t)],
    "cusparseSpMVOp_createDescr": [_Pointer, *_MATRIX, *_PLANNED[1:], _Pointer],
    "cusparseSpMVOp_destroyDescr": [_Pointer],
    "cusparseSpMVOp_createPlan": [_Pointer, _Pointer, *_MATRIX, _Pointer, ctypes.c_size_t],
    "cusparseSpMVOp_destroyPlan": [_Pointer],
    "cusparseSpMVOp": [_Pointer] * 7,
    "cusparseSpMV_createDescr": [*_MATRIX],
    "cusparseSpMV_destroyDescr": [_Pointer],
    "cusparseSpMVDescrSetParam": [_Pointer, _Int, _Pointer, ctypes.c_size_t],
    "cusparseSpMVGeneric_bufferSize": [*_GENERIC, ctypes.POINTER(ctypes.c_size_t)],
    "cusparseSpMVGeneric_preprocess": _GENERIC,
    "cusparseSpMVGeneric": _GENERIC,
}


class CuSparse:
    """The library with one handle on one stream."""

    def __init__(self, stream: int) -> None:
        """Raises CuSparseRefused without a device; pathfinder.DynamicLibNotFoundError without the library."""
        self._library = load_library()
        self._handle = _Pointer()
        self.call("cusparseCreate", ctypes.byref(self._handle))
        self.use(stream)

    def use(self, stream: int) -> None:
        """Calls go to this stream from here on."""
        self.call("cusparseSetStream", self._handle, stream)

    @property
    def handle(self) -> _Pointer:
        return self._handle

    @property
    def version(self) -> str:
        return library_version(self._library)

    def has(self, name: str) -> bool:
        """Whether the library has one of the calls that came with 12.9, as they are written here."""
        return has_new_call(self._library, name)

    def call(self, name: str, *arguments: object) -> None:
        """Calls a function of the library. Raises CuSparseRefused unless it returns success."""
        function = getattr(self._library, name, None)
        if function is None:
            raise CuSparseRefused(f"{name} is not in this cuSPARSE")
        status = int(function(*arguments))
        if status:
            raise CuSparseRefused(f"{name}: {_error_name(self._library, status)}", field=name, value=status)

    def release(self, name: str, pointer: _Pointer) -> None:
        """Destroys an object. The status is dropped: after a lost device nothing can be released, nor need it be."""
        getattr(self._library, name)(pointer)


def load_library() -> ctypes.CDLL:
    """libcusparse from the nvidia wheels, conda or the toolkit, in cuda-pathfinder's order."""
    from cuda import pathfinder

    _load_linker()
    path = pathfinder.load_nvidia_dynamic_lib("cusparse").abs_path
    return declared(ctypes.CDLL(path))


def _load_linker() -> None:
    """nvJitLink, which SpMVOp looks for when it plans. Without it plans are refused, and left out of the baselines."""
    from cuda import pathfinder

    try:
        ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("nvJitLink").abs_path, mode=ctypes.RTLD_GLOBAL)
    except (pathfinder.DynamicLibNotFoundError, OSError) as error:
        _log.info("cuSPARSE makes no plans here: %s", error)


def declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """With the types of the functions that it has."""
    for name, signature in _SIGNATURES.items():
        function = getattr(library, name, None)
        if function is not None:
            function.argtypes = signature
            function.restype = _Int
    library.cusparseGetErrorName.argtypes = [_Int]
    library.cusparseGetErrorName.restype = ctypes.c_char_p
    return library


def library_version(library: ctypes.CDLL) -> str:
    """`12.6.2`. Works without a device."""
    return ".".join(map(str, _version(library)))


def has_new_call(library: ctypes.CDLL, name: str) -> bool:
    """See `CuSparse.has`. Works without a device."""
    return hasattr(library, name) and _version(library)[:2] >= NEW_CALLS_SINCE


def _version(library: ctypes.CDLL) -> tuple[int, ...]:
    parts = []
    for property_ in range(3):  # MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
        value = _Int()
        library.cusparseGetProperty(property_, ctypes.byref(value))
        parts.append(int(value.value))
    return tuple(parts)


def _error_name(library: ctypes.CDLL, status: int) -> str:
    name: bytes | None = library.cusparseGetErrorName(status)
    return name.decode() if name else f"status {status}"


class Descriptor:
    """An opaque cuSPARSE object, destroyed with this one."""

    def __init__(self, cusparse: CuSparse, create: str, destroy: str, *arguments: object) -> None:
        self._cusparse = cusparse
        self._destroy = destroy
        self.pointer = _Pointer()
        cusparse.call(create, ctypes.byref(self.pointer), *arguments)

    def __del__(self) -> None:
        if self.pointer:
            self._cusparse.release(self._destroy, self.pointer)


@dataclass(frozen=True)
class MatrixShape:
    """Of the sparse operand as cuSPARSE sees it (a blocked format pads it)."""

    num_rows: int
    num_cols: int
    nnz: int


def csr(
    library: CuSparse, shape: MatrixShape, row_offsets: int, col_indices: int, values: int, element_type: ElementType
) -> Descriptor:
    """All operands are device addresses; indices are 32-bit."""
    return Descriptor(
        library, "cusparseCreateCsr", "cusparseDestroySpMat",
        shape.num_rows, shape.num_cols, shape.nnz, row_offsets, col_indices, values,
        _INDEX_32I, _INDEX_32I, _INDEX_BASE_ZERO, _DATA_TYPES[element_type],
    )  # fmt: skip


def lower_csr(
    library: CuSparse, shape: MatrixShape, row_offsets: int, col_indices: int, values: int, element_type: ElementType
) -> Descriptor:
    """Of a symmetric matrix the part that is not above its diagonal, `shape.nnz` of its nonzeros.

    Raises CuSparseRefused also where the library knows no such storage.
    """
    matrix = csr(library, shape, row_offsets, col_indices, values, element_type)
    for attribute, value in ((_ATTRIBUTE_SYMMETRY, _Int(_SYMMETRIC)), (_ATTRIBUTE_STORAGE, _Int(_STORE_LOWER))):
        library.call("cusparseSpMatSetAttribute", matrix.pointer, attribute, ctypes.byref(value), ctypes.sizeof(value))
    return matrix


def coo(
    library: CuSparse, shape: MatrixShape, row_indices: int, col_indices: int, values: int, element_type: ElementType
) -> Descriptor:
    """Sorted by row."""
    return Descriptor(
        library, "cusparseCreateCoo", "cusparseDestroySpMat",
        shape.num_rows, shape.num_cols, shape.nnz, row_indices, col_indices, values,
        _INDEX_32I, _INDEX_BASE_ZERO, _DATA_TYPES[element_type],
    )  # fmt: skip


def sliced_ell(
    library: CuSparse,
    shape: MatrixShape,
    num_slots: int,
    slice_size: int,
    slice_offsets: int,
    col_indices: int,
    values: int,
    element_type: ElementType,
) -> Descriptor:
    """Column-major within a slice; the column of a padding slot is -1."""
    return Descriptor(
        library, "cusparseCreateSlicedEll", "cusparseDestroySpMat",
        shape.num_rows, shape.num_cols, shape.nnz, num_slots, slice_size, slice_offsets, col_indices, values,
        _INDEX_32I, _INDEX_32I, _INDEX_BASE_ZERO, _DATA_TYPES[element_type],
    )  # fmt: skip


def bsr(  # noqa: PLR0913
    library: CuSparse,
    num_block_rows: int,
    num_block_cols: int,
    num_blocks: int,
    block_size: int,
    row_offsets: int,
    col_indices: int,
    values: int,
    element_type: ElementType,
) -> Descriptor:
    """Square blocks, row-major within a block."""
    return Descriptor(
        library, "cusparseCreateBsr", "cusparseDestroySpMat",
        num_block_rows, num_block_cols, num_blocks, block_size, block_size, row_offsets, col_indices, values,
        _INDEX_32I, _INDEX_32I, _INDEX_BASE_ZERO, _DATA_TYPES[element_type], _ORDER_ROW,
    )  # fmt: skip


def blocked_ell(
    library: CuSparse,
    shape: MatrixShape,
    block_size: int,
    row_slots: int,
    col_indices: int,
    values: int,
    element_type: ElementType,
) -> Descriptor:
    """Square blocks, as many in each block row, `row_slots` slots a row; row-major across the blocks of a block row.
    The block column of a padding block is -1. `shape`: whole blocks."""
    return Descriptor(
        library, "cusparseCreateBlockedEll", "cusparseDestroySpMat",
        shape.num_rows, shape.num_cols, block_size, row_slots, col_indices, values,
        _INDEX_32I, _INDEX_BASE_ZERO, _DATA_TYPES[element_type],
    )  # fmt: skip


def dense_vector(library: CuSparse, length: int, address: int, element_type: ElementType) -> Descriptor:
    return Descriptor(
        library, "cusparseCreateDnVec", "cusparseDestroyDnVec", length, address, _DATA_TYPES[element_type]
    )


def move_dense(library: CuSparse, operation: Operation, operand: Descriptor, address: int) -> None:
    """A dense operand of spmv or spmm lies elsewhere from here on."""
    function = "cusparseDnVecSetValues" if operation == "spmv" else "cusparseDnMatSetValues"
    library.call(function, operand.pointer, address)


def dense_matrix(
    library: CuSparse, num_rows: int, num_cols: int, address: int, element_type: ElementType
) -> Descriptor:
    """Row-major without padding."""
    return Descriptor(
        library, "cusparseCreateDnMat", "cusparseDestroyDnMat",
        num_rows, num_cols, num_cols, address, _DATA_TYPES[element_type], _ORDER_ROW,
    )  # fmt: skip


@dataclass(frozen=True)
class Form:
    """How a product is called: y = alpha op(A) x + beta y."""

    element_type: ElementType
    is_transposed: bool = False
    alpha: float = 1.0
    beta: float = 0.0

    @property
    def operation(self) -> int:
        """op, as the library numbers it."""
        return _TRANSPOSE if self.is_transposed else _NON_TRANSPOSE

    @property
    def compute_type(self) -> int:
        """What products are summed in, as the library numbers it: float32 of 16-bit numbers."""
        return _DATA_TYPES[ELEMENTS[self.element_type].sums]

    @property
    def scalars(self) -> "tuple[ctypes.c_float | ctypes.c_double, ctypes.c_float | ctypes.c_double]":
        """Alpha and beta in the host's memory, of the type of sums."""
        scalar = _SCALARS[ELEMENTS[self.element_type].sums]
        return scalar(self.alpha), scalar(self.beta)


class Call(Protocol):
    """A routine ready to be launched."""

    def renew(self) -> None:
        """To be called after the values of A have changed."""
        ...

    def enqueue(self, stream: int) -> None:
        """Puts the product on the handle's stream."""
        ...


class Product:
    """A prepared SpMV or SpMM: workspace allocated, preprocessing done; enqueue() only computes."""

    def __init__(
        self,
        library: CuSparse,
        operation: Operation,
        matrix: Descriptor,
        dense_input: Descriptor,
        dense_output: Descriptor,
        algorithm: int,
        form: Form,
    ) -> None:
        """Raises CuSparseRefused where the routine does not support the format, the type or the shape."""
        self._library = library
        self._function = "cusparseSpMV" if operation == "spmv" else "cusparseSpMM"
        self._kept = (matrix, dense_input, dense_output)
        self._alpha, self._beta = form.scalars
        transposes = (form.operation,) if operation == "spmv" else (form.operation, _NON_TRANSPOSE)
        self._arguments = (
            library.handle, *transposes, ctypes.addressof(self._alpha), matrix.pointer, dense_input.pointer,
            ctypes.addressof(self._beta), dense_output.pointer, form.compute_type, algorithm,
        )  # fmt: skip
        self._buffer = _work_buffer(library, f"{self._function}_bufferSize", *self._arguments)
        self.preprocessed = self._preprocess()
        """False where this routine has no preprocessing."""

    @property
    def workspace_bytes(self) -> int:
        """Device memory that it holds."""
        return int(self._buffer.mem.size)

    def _preprocess(self) -> bool:
        try:
            self._library.call(f"{self._function}_preprocess", *self._arguments, int(self._buffer.ptr))
        except CuSparseRefused:
            return False
        return True

    def renew(self) -> None:
        """Values are read anew each time."""

    def enqueue(self, stream: int) -> None:
        """See Call."""
        self._library.call(self._function, *self._arguments, int(self._buffer.ptr))


def _work_buffer(library: CuSparse, size_function: str, *arguments: object) -> Any:
    """Memory of the size that the function asks for. Raises CuSparseRefused."""
    import cupy

    size = ctypes.c_size_t()
    library.call(size_function, *arguments, ctypes.byref(size))
    return cupy.cuda.alloc(max(int(size.value), MIN_BUFFER_BYTES))


class PlannedProduct:
    """SpMVOp: descriptor and plan for one matrix. The plan of ALG2 holds the values as they were when it was made."""

    def __init__(
        self,
        library: CuSparse,
        matrix: Descriptor,
        dense_input: Descriptor,
        dense_output: Descriptor,
        algorithm: int,
        form: Form,
    ) -> None:
        """Raises CuSparseRefused, also where there is no nvJitLink."""
        self._library = library
        self._vectors = dense_input, dense_output
        self._alpha, self._beta = form.scalars
        # What is added to is what is written: Y is Z.
        self._shape = (
            form.operation, matrix.pointer, dense_input.pointer, dense_output.pointer, dense_output.pointer,
            form.compute_type, algorithm,
        )  # fmt: skip
        self._matrix = matrix
        self._buffer = _work_buffer(library, "cusparseSpMVOp_bufferSize", library.handle, *self._shape)
        self._plan = _Plan(library, self._shape, int(self._buffer.ptr))

    def renew(self) -> None:
        """Plans again."""
        self._plan = _Plan(self._library, self._shape, int(self._buffer.ptr))

    def enqueue(self, stream: int) -> None:
        """See Call."""
        given, wanted = self._vectors
        self._library.call(
            "cusparseSpMVOp", self._library.handle, self._plan.pointer, ctypes.addressof(self._alpha),
            ctypes.addressof(self._beta), given.pointer, wanted.pointer, wanted.pointer,
        )  # fmt: skip


class _Plan:
    """Of a product, destroyed with this object."""

    def __init__(self, library: CuSparse, shape: tuple[object, ...], buffer: int) -> None:
        self._library = library
        self._descriptor, self.pointer = _Pointer(), _Pointer()
        library.call(
            "cusparseSpMVOp_createDescr", library.handle, ctypes.byref(self._descriptor), *shape, _Pointer(buffer)
        )
        library.call(
            "cusparseSpMVOp_createPlan", library.handle, self._descriptor, ctypes.byref(self.pointer), _Pointer(), 0
        )

    def __del__(self) -> None:
        if self.pointer:
            self._library.release("cusparseSpMVOp_destroyPlan", self.pointer)
        if self._descriptor:
            self._library.release("cusparseSpMVOp_destroyDescr", self._descriptor)


class DescribedProduct:
    """SpMVGeneric: operation, algorithm and buffer stand in a descriptor, with what was preprocessed."""

    def __init__(
        self,
        library: CuSparse,
        matrix: Descriptor,
        dense_input: Descriptor,
        dense_output: Descriptor,
        algorithm: int,
        form: Form,
    ) -> None:
        """Raises CuSparseRefused."""
        self._library = library
        self._descriptor = Descriptor(library, "cusparseSpMV_createDescr", "cusparseSpMV_destroyDescr")
        self._kept = matrix, dense_input, dense_output
        self._set(_PARAM_OPERATION, _Int(form.operation))
        self._set(_PARAM_ALGORITHM, _Int(algorithm))
        self._alpha, self._beta = form.scalars
        self._arguments = (
            library.handle, ctypes.addressof(self._alpha), matrix.pointer, dense_input.pointer,
            ctypes.addressof(self._beta), dense_output.pointer, dense_output.pointer, form.compute_type,
            self._descriptor.pointer,
        )  # fmt: skip
        self._buffer = _work_buffer(library, "cusparseSpMVGeneric_bufferSize", *self._arguments)
        self._set(_PARAM_BUFFER, _Pointer(int(self._buffer.ptr)))
        library.call("cusparseSpMVGeneric_preprocess", *self._arguments)

    def _set(self, parameter: int, value: ctypes.c_int | ctypes.c_void_p) -> None:
        self._library.call(
            "cusparseSpMVDescrSetParam", self._descriptor.pointer, parameter, ctypes.byref(value), ctypes.sizeof(value)
        )

    def renew(self) -> None:
        """What was preprocessed is of the pattern."""

    def enqueue(self, stream: int) -> None:
        """See Call."""
        self._library.call("cusparseSpMVGeneric", *self._arguments)
