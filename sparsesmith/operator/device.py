"""Products on a GPU: the tuned kernel or the vendor's library for A, a plain kernel for A^T.

Kernels run through libsparsesmith_op, arguments bound beforehand; where that cannot be built, through CuPy.
What a call does is put on the current stream of x's kind (torch's for tensors on the GPU, else CuPy's); nothing waits.
With `out` on the GPU a plain product allocates nothing once the first of its direction was made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.artifacts.launcher import (
    device_operand,
    import_cupy,
    library_launcher,
    like,
    program_launcher,
    stream_of,
    values_of,
)
from sparsesmith.errors import Conflict
from sparsesmith.operator.arrays import address_of, apart, kind_of, place_of, refused
from sparsesmith.operator.backend import BoundProduct, OneWay, Scale
from sparsesmith.operator.directions import Order, is_of_stored, plain_program, transposed_matrix, transposed_workload
from sparsesmith.operator.native.products import NativeProducts, native_products, shared_products
from sparsesmith.operator.parts import NO_PARTS, Parts
from sparsesmith_proto.kernel import Workload

DEFAULT_STREAMS = (0, 1)
"""That of the driver, which cannot be captured and must not be asked about it while another one is."""


def refuse_in_a_capture(x: Any, cupy: Any, what: str) -> None:
    """Raises Conflict where the stream that products with x go to is being captured: what a first product makes is
    memory and machine code, which no graph can hold."""
    with stream_of(x, cupy):
        stream = cupy.cuda.get_current_stream()
    if stream.ptr not in DEFAULT_STREAMS and stream.is_capturing():
        reason = f"this first product with {what} is being captured: multiply with {what} once before the capture"
        raise Conflict(f"operator: {reason}", field="operator", value="capturing", limit="one product before")


@dataclass(frozen=True)
class Tuned:
    """What was found for A, or for A^T."""

    workload: Workload
    program: str | None
    """None: the vendor's routine."""
    routine: str | None = None
    """Its name; None: the default one."""


class DeviceBackend:
    """Implements Backend, on the device that is current when it is made, for a first product with `x`. Raises
    Unavailable without CuPy or a GPU, Conflict where that product is being captured."""

    def __init__(
        self,
        matrix: scipy.sparse.csr_matrix,
        tuned: Tuned,
        parts: Parts,
        backward: Tuned | None = None,
        x: Any = None,
    ) -> None:
        self._cupy = import_cupy()
        if x is not None:
            refuse_in_a_capture(x, self._cupy, "A")
        self._device = self._cupy.cuda.Device()
        self._workload = tuned.workload
        self._is_fixed = tuned.program is not None and tuned.workload.values is not None
        self._tuned_backward = backward
        self._matrix = matrix
        shared = None if backward is None else _shared_products(matrix, tuned, backward, parts)
        if shared is None:
            self._forward = _products(matrix, tuned, parts)
        else:
            self._forward, turned = shared
            self.__dict__["_backward"] = _Backward(turned, None)

    def product(self, x: Any, out: Any, scale: Scale, *, transposed: bool) -> Any:
        """See Backend.product. Raises InvalidInput for an x on another GPU."""
        self._check_device(x, "x")
        launcher = self._way(x, transposed)
        direct = self._direct(launcher, x)
        if direct is not None and out is not None and _is_on_a_gpu(x):
            return self.bound(x, out, transposed=transposed)(x, out, scale)
        num_results = self._matrix.shape[1 if transposed else 0]
        with self._device, stream_of(x, self._cupy):
            operand = device_operand(x, self._cupy, tuple(x.shape), self._workload.element_type)
            result = None if out is None or not _is_on_a_gpu(out) else self._of_cupy(out)
            if result is not None and scale.is_plain:
                self._multiply(launcher, operand, result)
                return out
            found = self._cupy.empty((num_results, *operand.shape[1:]), operand.dtype)
            if direct is not None:
                self._directly(direct, operand, found, Scale(scale.alpha))
            else:
                self._multiply(launcher, operand, found)
                found *= operand.dtype.type(scale.alpha)
            return like(x, found) if out is None else self._add(found, out, result, scale)

    def bound(self, x: Any, out: Any, *, transposed: bool) -> BoundProduct:
        """See Backend.bound. Where the kernel takes them as they are: addresses and the current stream of x's kind are
        all that is asked for in a call."""
        direct = self._direct(self._way(x, transposed), x)
        if direct is None or not _is_on_a_gpu(x):
            return apart(partial(self.product, transposed=transposed))
        here, device = self._device.id, self._device
        self._check_device(x, "x")
        current_device = self._cupy.cuda.runtime.getDevice
        run = direct.of_arrays(kind_of(x), _stream_reader(x, self._cupy, here))

        def product(x: Any, out: Any, scale: Scale) -> Any:
            if current_device() == here:
                return run(x, out, scale)
            with device:
                return run(x, out, scale)

        return product

    def _check_device(self, array: Any, name: str) -> None:
        here = self._device.id
        if _is_on_a_gpu(array) and place_of(array) != f"cuda:{here}":
            raise refused(name, f"lies on {place_of(array)}, the matrix on cuda:{here}", place_of(array), here)

    def _way(self, x: Any, transposed: bool) -> OneWay:
        """Raises Conflict where A^T would be made in a capture."""
        if not transposed:
            return self._forward
        if "_backward" not in self.__dict__:
            refuse_in_a_capture(x, self._cupy, "A^T")
        return self._backward.products

    def _direct(self, launcher: OneWay, x: Any) -> NativeProducts | None:
        """What runs through the C library, where x has as many columns as the kernel takes at once."""
        return launcher if isinstance(launcher, NativeProducts) and self._is_of_the_kernel(x) else None

    def _directly(self, products: NativeProducts, x: Any, out: Any, scale: Scale) -> None:
        """CuPy's arrays on this device, on CuPy's current stream."""
        products.scaled(address_of(x), address_of(out), self._cupy.cuda.get_current_stream().ptr, scale)

    def set_values(self, values: Any) -> None:
        """See Backend.set_values. In place: a captured graph multiplies with the new ones.
        Raises InvalidInput for values on another GPU."""
        self._check_device(values, "values")
        with self._device, stream_of(values, self._cupy):
            ordered = device_operand(values, self._cupy, tuple(values.shape), self._workload.element_type)
            if not self._is_fixed:  # Then they are those that it has.
                self._forward.set_values(ordered)
            if "_backward" in self.__dict__:
                self._backward.set_values(ordered)

    def values(self) -> npt.NDArray[np.floating[Any]]:
        """See Backend.values."""
        return self._forward.values()

    @property
    def device_bytes(self) -> int:
        """See Backend.device_bytes."""
        backward = self._backward.device_bytes if "_backward" in self.__dict__ else 0
        return self._forward.device_bytes + backward

    @cached_property
    def _backward(self) -> "_Backward":
        """A^T, made when it is first asked for; with a plain program where nobody has tuned it."""
        matrix, tuned = self._matrix.copy(), self._tuned_backward
        matrix.data = values_of(matrix, self._workload.element_type) if self._is_fixed else self.values()
        if tuned is not None and tuned.program is not None and is_of_stored(tuned.workload):
            with self._device:
                return _Backward(_products(matrix, tuned, NO_PARTS), None)
        transpose, order = transposed_matrix(matrix)
        if tuned is not None and is_of_stored(tuned.workload):
            tuned = Tuned(transposed_workload(transpose, self._workload), None)
        if tuned is None:
            tuned = Tuned(transposed_workload(transpose, self._workload), plain_program(self._workload))
        with self._device:
            products = _products(transpose, tuned, NO_PARTS, order)
            return _Backward(products, None if isinstance(products, NativeProducts) else self._cupy.asarray(order))

    def _of_cupy(self, out: Any) -> Any:
        """An array of the element type, contiguous: on the GPU over the same memory, else a copy there."""
        return device_operand(out, self._cupy, tuple(out.shape), self._workload.element_type)

    def _is_of_the_kernel(self, x: Any) -> bool:
        """Whether it has as many columns as the kernel takes at once."""
        columns = x.shape[1] if x.ndim == 2 else 1
        return bool(columns == (1 if self._workload.operation == "spmv" else self._workload.num_dense_cols))

    def _multiply(self, launcher: OneWay, operand: Any, result: Any) -> None:
        """Of as many columns as there are, with a kernel for `num_dense_cols` of them."""
        columns = self._workload.num_dense_cols
        if self._workload.operation == "spmv":
            self._by_vectors(launcher.multiply, operand, result)
        elif operand.ndim == 2 and operand.shape[1] == columns:
            launcher.multiply(operand, result)
        else:
            self._by_blocks(launcher.multiply, operand, result, columns)

    def _by_vectors(self, multiply: Callable[[Any, Any], None], operand: Any, result: Any) -> None:
        if operand.size == operand.shape[0]:
            multiply(operand.reshape(-1), result.reshape(-1))
            return
        rows = self._cupy.empty(result.shape[::-1], result.dtype)
        for column, row in zip(self._cupy.ascontiguousarray(operand.T), rows, strict=True):
            multiply(column, row)
        result[...] = rows.T

    def _by_blocks(self, multiply: Callable[[Any, Any], None], operand: Any, result: Any, columns: int) -> None:
        """Blocks of `columns` columns; the last is filled up with zeros."""
        wide, found = operand.reshape(operand.shape[0], -1), result.reshape(result.shape[0], -1)
        for start in range(0, wide.shape[1], columns):
            part = wide[:, start : start + columns]
            block = self._cupy.zeros((wide.shape[0], columns), wide.dtype)
            block[:, : part.shape[1]] = part
            product = self._cupy.empty((found.shape[0], columns), found.dtype)
            multiply(block, product)
            found[:, start : start + columns] = product[:, : part.shape[1]]

    def _add(self, found: Any, out: Any, result: Any, scale: Scale) -> Any:
        """`out` = found + beta `out`, wherever it lies."""
        target = self._of_cupy(out) if result is None else result
        if scale.beta:
            found += found.dtype.type(scale.beta) * target
        if result is not None:
            result[...] = found
        elif isinstance(out, np.ndarray):
            found.get(out=out)
        else:
            out.copy_(like(out, found))
        return out


@dataclass(frozen=True)
class _Backward:
    """Products with A^T."""

    products: OneWay
    order: Any
    """For each of its nonzeros the place of its value among those of A, a CuPy array; None: it knows itself."""

    def set_values(self, values: Any) -> None:
        """In the order of A."""
        self.products.set_values(values if self.order is None else values[self.order])

    @property
    def device_bytes(self) -> int:
        return self.products.device_bytes + (0 if self.order is None else int(self.order.nbytes))


def _shared_products(
    matrix: scipy.sparse.csr_matrix, tuned: Tuned, backward: Tuned, parts: Parts
) -> tuple[OneWay, OneWay] | None:
    """Both directions over one copy of A; None where they are not from one, or there is no C library."""
    if tuned.program is None or backward.program is None or not is_of_stored(backward.workload):
        return None
    return shared_products(matrix, (tuned.workload, tuned.program), (backward.workload, backward.program), parts)


def _products(matrix: scipy.sparse.csr_matrix, tuned: Tuned, parts: Parts, order: Order | None = None) -> OneWay:
    """`order`: see `native_products`."""
    if tuned.program is None:
        return library_launcher(matrix, tuned.workload, tuned.routine)
    native = native_products(matrix, tuned.workload, tuned.program, parts, order)
    return native or program_launcher(tuned.program, matrix, tuned.workload, layout=parts.layout, cubin=parts.cubin)


def _stream_reader(x: Any, cupy: Any, device: int) -> Callable[[], int]:
    """The handle of the stream that is current for arrays of x's kind, on a device."""
    if kind_of(x) != "torch":
        current = cupy.cuda.get_current_stream
        return lambda: current(device).ptr
    import torch

    # Without an object for the stream; what torch's own compiled code calls.
    if (handle_of := getattr(torch._C, "_cuda_getCurrentRawStream", None)) is not None:
        return partial(handle_of, device)
    current_of_torch = torch.cuda.current_stream
    return lambda: int(current_of_torch(device).cuda_stream)


def _is_on_a_gpu(array: Any) -> bool:
    return bool(getattr(array, "is_cuda", False)) or type(array).__module__.startswith("cupy")
