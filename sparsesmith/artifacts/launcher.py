"""Run a kernel program on the user's own GPU: CuPy, torch or NumPy arrays in and out.

CuPy is imported when a launcher is made, torch when a tensor comes in, so that the client works without either.
"""

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.artifacts.loaded_program import LoadedProgram
from sparsesmith.elements import ELEMENTS, WIDE_TYPES, dtype_of
from sparsesmith.errors import InvalidInput, InvalidMatrix, Unavailable
from sparsesmith.formats.format import VALUES, Argument, Layout
from sparsesmith.formats.values.compressed import build_layout
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.matrix.values import FixedValues, fixed_values
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.operation import operands_with_role
from sparsesmith.operations.product import TransposedProduct
from sparsesmith.operations.texts import with_element_type
from sparsesmith.program.binding import bind
from sparsesmith.program.program import KernelProgram, parse_program
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType

_SOURCES = "value_sources"

_log = logging.getLogger(__name__)


class Launcher(Protocol):
    """Multiplies one matrix with dense operands."""

    def __call__(self, dense: Any) -> Any: ...

    def multiply(self, operand: Any, result: Any) -> None:
        """`result` = A `operand` on CuPy's current stream: contiguous CuPy arrays of the workload's type and shapes."""
        ...

    def update_values(self, matrix: scipy.sparse.csr_matrix) -> None:
        """Values in the same pattern."""
        ...

    def set_values(self, values: Any) -> None:
        """Values in CSR order, a CuPy array of the workload's type, in the place of the old ones: what a captured graph
        reads."""
        ...

    def values(self) -> npt.NDArray[Any]:
        """Those that it multiplies with, in CSR order, on the host."""
        ...

    @property
    def device_bytes(self) -> int:
        """Device memory that it holds."""
        ...


def program_launcher(
    program: str,
    matrix: scipy.sparse.csr_matrix,
    workload: Workload,
    *,
    layout: Layout | None = None,
    cubin: bytes = b"",
) -> Launcher:
    """A launcher of a kernel program on the current device, its format built from the matrix.

    The matrix must be canonical: columns ascend in each row. `layout` and `cubin`: where they are known, nothing is
    built and nothing compiled. As everywhere in CuPy, float32 numbers below 1.2e-38 in size count as zero where it
    compiles. Raises InvalidProgram, InvalidMatrix where the matrix has another pattern than the workload, or other
    values where the workload fixes them, Unavailable without CuPy or a GPU.
    """
    parsed = parse_program(program, workload.operation, workload.element_type)
    pattern = pattern_from_scipy(matrix)
    if pattern.digest != workload.pattern:
        raise _another_pattern(pattern.digest, workload.pattern)
    values = checked_values(matrix.data, workload)
    if layout is None:
        layout = build_layout(parsed.format, parsed.parameters, pattern, values)
    return _ProgramLauncher(parsed, layout, Problem(workload, pattern, values).unscaled, matrix, cubin)


def checked_values(values: npt.NDArray[Any], workload: Workload) -> FixedValues | None:
    """Values in CSR order where the workload fixes them; None where it does not. Raises InvalidMatrix for others."""
    if workload.values is None:
        return None
    given = fixed_values(values, workload.element_type)
    if given.digest != workload.values:
        raise InvalidMatrix(
            "the matrix has other values than the kernel was tuned with (values=fixed): it is valid for those only",
            field="values",
            value=given.digest,
            limit=workload.values,
        )
    return given


def library_launcher(matrix: scipy.sparse.csr_matrix, workload: Workload, routine: str | None = None) -> Launcher:
    """A launcher of cuSPARSE, for workloads where no program beat it: of the routine by that name where it can be
    called here, else of the default one. Raises Unavailable.

    The operation's naive program runs where no routine can be called: of A^T from A as it is stored, of 16-bit numbers
    where none is named (some keep sums in 16 bits), and where there is no library that does it.
    """
    operation = operation_named(workload.operation)
    is_safe = routine is not None or workload.element_type in WIDE_TYPES
    if is_safe and not isinstance(operation, TransposedProduct):
        import_cupy()
        try:
            return _LibraryLauncher(matrix, workload, routine)
        except Unavailable as error:
            _log.warning("a plain kernel instead of cuSPARSE, which is faster here: %s", error)
    return program_launcher(
        with_element_type(operation.programs[operation.naive], workload.element_type), matrix, workload
    )


class _ProgramLauncher:
    def __init__(
        self,
        program: KernelProgram,
        layout: Layout,
        problem: Problem,
        matrix: scipy.sparse.csr_matrix,
        cubin: bytes,
    ) -> None:
        self._cupy = import_cupy()
        self._device = self._cupy.cuda.Device()
        self._workload = problem.workload
        self._pattern = problem.pattern
        self._layout = layout
        num_sms = self._device.attributes["MultiProcessorCount"]
        self._bound = bind(program, self._layout, problem, num_sms)
        self._kernels = LoadedProgram(self._cupy, program, self._bound, cubin)
        self._arrays = {name: self._cupy.asarray(array) for name, array in self._layout.indices.items()}
        for buffer in self._bound.with_role("scratch"):
            self._arrays[buffer.name] = self._cupy.empty(buffer.num_bytes, "uint8")
        self.update_values(matrix)

    def update_values(self, matrix: scipy.sparse.csr_matrix) -> None:
        _check_pattern(matrix, self._pattern)
        checked_values(matrix.data, self._workload)
        if not self._bound.names("values"):
            return
        packed = self._layout.pack(values_of(matrix, self._workload.element_type))
        with self._device:
            if VALUES in self._arrays:
                self._arrays[VALUES].set(packed)
            else:
                self._arrays[VALUES] = self._cupy.asarray(packed)

    def set_values(self, values: Any) -> None:
        """See Launcher.set_values."""
        if not self._bound.names("values"):
            return
        packed = self._arrays[VALUES]
        with self._device:
            if self._layout.value_sources is None:
                packed[...] = values
                return
            sources = self._sources()
            self._cupy.take(values, self._cupy.maximum(sources, 0), out=packed)
            packed[sources < 0] = 0

    def values(self) -> npt.NDArray[Any]:
        """See Launcher.values. Of a program whose values are compressed: none, they are fixed."""
        packed: npt.NDArray[Any] = self._arrays[VALUES].get()
        return packed if self._layout.value_sources is None else self._layout.unpack(packed, self._pattern.nnz)

    @property
    def device_bytes(self) -> int:
        """See Launcher.device_bytes."""
        return sum(int(array.nbytes) for array in self._arrays.values())

    def multiply(self, operand: Any, result: Any) -> None:
        """See Launcher.multiply."""
        self._kernels.launch(tuple(self._argument(each, operand, result) for each in self._bound.arguments))

    def __call__(self, dense: Any) -> Any:
        with self._device, stream_of(dense, self._cupy):
            (given,), (wanted,) = self._bound.names("input"), self._bound.names("output")
            operand = device_operand(dense, self._cupy, self._bound.buffer(given).shape, self._workload.element_type)
            result = self._cupy.empty(self._bound.buffer(wanted).shape, operand.dtype)
            self.multiply(operand, result)
            return like(dense, result)

    def _sources(self) -> Any:
        """Where each stored slot has its value from, on the device; uploaded when it is first asked for."""
        if _SOURCES not in self._arrays:
            self._arrays[_SOURCES] = self._cupy.asarray(self._layout.value_sources)
        return self._arrays[_SOURCES]

    def _argument(self, argument: Argument, operand: Any, result: Any) -> Any:
        match argument.role:
            case "size":
                return np.int32(self._bound.sizes[argument.name])
            case "input":
                return operand
            case "inout" | "output":
                return result
            case "index" | "values" | "scratch":
                return self._arrays[argument.name]


class _LibraryLauncher:
    def __init__(self, matrix: scipy.sparse.csr_matrix, workload: Workload, routine: str | None) -> None:
        from sparsesmith.artifacts.library_product import LibraryProduct

        self._cupy = import_cupy()
        self._device = self._cupy.cuda.Device()
        self._workload = workload
        self._pattern = pattern_from_scipy(matrix)
        self._values = self._cupy.asarray(values_of(matrix, workload.element_type))
        self._product: LibraryProduct | None = None
        if self._pattern.nnz:
            self._product = LibraryProduct(self._cupy, self._pattern, self._values, workload, routine)

    def update_values(self, matrix: scipy.sparse.csr_matrix) -> None:
        _check_pattern(matrix, self._pattern)
        with self._device:
            self._values.set(values_of(matrix, self._workload.element_type))

    def set_values(self, values: Any) -> None:
        """See Launcher.set_values."""
        with self._device:
            self._values[...] = values

    def values(self) -> npt.NDArray[Any]:
        """See Launcher.values."""
        found: npt.NDArray[Any] = self._values.get()
        return found

    @property
    def device_bytes(self) -> int:
        """See Launcher.device_bytes."""
        return int(self._values.nbytes) + (0 if self._product is None else self._product.device_bytes)

    def multiply(self, operand: Any, result: Any) -> None:
        """See Launcher.multiply."""
        if self._product is None:
            result.fill(0)
            return
        stream = int(self._cupy.cuda.get_current_stream().ptr)
        self._product.enqueue(int(operand.data.ptr), int(result.data.ptr), stream)

    def __call__(self, dense: Any) -> Any:
        with self._device, stream_of(dense, self._cupy):
            expected = dense_shape((self._pattern.num_rows, self._pattern.num_cols), self._workload)
            operand = device_operand(dense, self._cupy, expected, self._workload.element_type)
            result = self._cupy.empty((self._pattern.num_rows, *expected[1:]), operand.dtype)
            self.multiply(operand, result)
            return like(dense, result)


def dense_shape(shape: tuple[int, int], workload: Workload) -> tuple[int, ...]:
    """Of the dense operand of a product with a matrix of this shape."""
    sizes = {"num_rows": shape[0], "num_cols": shape[1], "num_dense_cols": workload.num_dense_cols}
    (given,) = operands_with_role(operation_named(workload.operation), "input")
    return given.shape(sizes)


def import_cupy() -> Any:
    """Raises Unavailable without it, or without a GPU."""
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


def current_architecture() -> str | None:
    """Of the current device (`sm_90`); None without CuPy or a GPU."""
    try:
        device = import_cupy().cuda.Device()
    except Unavailable:
        return None
    return f"sm_{device.compute_capability}"


def num_multiprocessors() -> int:
    """Of the current device. Raises Unavailable."""
    return int(import_cupy().cuda.Device().attributes["MultiProcessorCount"])


def values_of(matrix: scipy.sparse.csr_matrix, element_type: ElementType) -> npt.NDArray[np.floating[Any]]:
    """In CSR order, in the element type."""
    return np.ascontiguousarray(matrix.data, dtype=dtype_of(element_type))


def sum_type(element_type: ElementType) -> np.dtype[Any]:
    """What SciPy multiplies in: 16-bit numbers are widened, products rounded to them."""
    return dtype_of(ELEMENTS[element_type].sums)


def device_operand(dense: Any, cupy: Any, expected: tuple[int, ...], element_type: ElementType) -> Any:
    """The dense operand on the device: contiguous, in the workload's element type. Raises InvalidInput."""
    given = shaped_operand(dense, expected, element_type)
    array = cupy.asarray(given)
    if is_torch(given) and element_type == "bfloat16":
        array = array.view(dtype_of(element_type))
    operand = cupy.ascontiguousarray(array, dtype=dtype_of(element_type))
    here = cupy.cuda.runtime.getDevice()
    if operand.device.id != here:
        raise InvalidInput(
            f"the dense operand lies on device {operand.device.id}, the matrix on device {here}",
            field="dense",
            value=operand.device.id,
            limit=here,
        )
    return operand


def shaped_operand(dense: Any, expected: tuple[int, ...], element_type: ElementType) -> Any:
    """The dense operand where it lies, as what CuPy and NumPy can read. Raises InvalidInput for another shape."""
    given = _of_torch(dense, element_type) if is_torch(dense) else dense
    if tuple(np.shape(given)) != expected:
        raise InvalidInput(
            f"the dense operand has shape {tuple(np.shape(given))}: expected {expected}",
            field="dense",
            value=tuple(np.shape(given)),
            limit=expected,
        )
    return given


def is_torch(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def _of_torch(tensor: Any, element_type: ElementType) -> Any:
    """What CuPy can read: its own conversion knows not all of torch's types."""
    import torch

    converted = tensor.detach().to(getattr(torch, element_type))
    words = converted.view(torch.int16) if element_type == "bfloat16" else converted  # NumPy and CuPy take only these.
    return words if words.is_cuda else words.cpu().numpy().view(dtype_of(element_type))


def tensor_of(array: npt.NDArray[Any]) -> Any:
    """A NumPy array as a tensor on the host."""
    import torch

    if array.dtype.name == "bfloat16":  # A type of ml_dtypes, which torch does not know.
        return torch.as_tensor(array.view(np.int16)).view(torch.bfloat16)
    return torch.as_tensor(array)


class _ForeignStream:
    """A stream that CuPy did not make, as the CUDA stream protocol wants it; older releases of torch lack that."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


def stream_of(dense: Any, cupy: Any) -> AbstractContextManager[Any]:
    """What torch computed on its current stream is waited for, and what follows there waits for us."""
    if not is_torch(dense) or not dense.is_cuda:
        return nullcontext()
    import torch

    handle = torch.cuda.current_stream(dense.device).cuda_stream
    stream: AbstractContextManager[Any] = cupy.cuda.Stream.from_external(_ForeignStream(handle))
    return stream


def like(given: Any, result: Any) -> Any:
    """`result` (CuPy) as the kind of array that was given, on the device where that lies."""
    if is_torch(given):
        import torch

        if not given.is_cuda:
            return tensor_of(result.get())
        if result.dtype.name == "bfloat16":
            return torch.utils.dlpack.from_dlpack(result.view("int16")).view(torch.bfloat16)
        return torch.utils.dlpack.from_dlpack(result)
    return result.get() if isinstance(given, np.ndarray) else result


def _check_pattern(matrix: scipy.sparse.csr_matrix, pattern: Pattern) -> None:
    """Raises InvalidMatrix where the matrix has another one."""
    same = matrix.shape == (pattern.num_rows, pattern.num_cols)
    same = same and np.array_equal(matrix.indptr, pattern.row_offsets)
    if not same or not np.array_equal(matrix.indices, pattern.col_indices):
        raise _another_pattern(pattern_from_scipy(matrix).digest, pattern.digest)


def _another_pattern(found: str, expected: str | None) -> InvalidMatrix:
    return InvalidMatrix(
        "the matrix has another pattern than the kernel was tuned for", field="pattern", value=found, limit=expected
    )
