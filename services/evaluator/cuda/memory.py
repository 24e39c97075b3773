"""Guarded device memory: every buffer a kernel sees lies between guard zones that are checked afterwards.

One allocation holds all buffers of a program. Guard zones and everything that no kernel may write (indices, values, x)
are covered by keyed checksums, computed on the device before and after a launch. All other bytes are 0xFF: read as a
floating-point number that is NaN, read as an index it is -1.

What this does not protect against: reads outside a buffer whose value is not used, and writes that land in another
allocation (the draws and the uploaded formats have checksums of their own, looked at from time to time).
"""

import secrets
from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
from cupy.cuda import runtime

from services.evaluator.cuda.arena import (
    SPREAD_BYTES,
    BufferPlan,
    Placement,
    Segment,
    arena_bytes,
    buffer_starts,
    guarded_segments,
    random_placement,
)
from services.evaluator.cuda.carriers import carried, carrier_of
from services.evaluator.cuda.launch import cuda_errors
from services.evaluator.cuda.own_kernels import DeviceKernels
from services.evaluator.device import ALIGNMENT_BYTES

POISON = 0xFF


class SealedMemory:
    """Segments whose checksums are remembered and compared later, on the device."""

    def __init__(self, segments: Sequence[Segment], kernels: DeviceKernels) -> None:
        self._segments = tuple(segments)
        self._kernels = kernels
        self._key = secrets.randbits(63)
        rows = [[segment.address, segment.num_words] for segment in self._segments] or [[0, 0]]
        with cuda_errors():
            self._table = uploaded_table(rows, kernels.stream)
            self._sums = cupy.empty((2, len(rows)), dtype=np.uint64)

    def seal(self) -> None:
        """Remembers the contents as of now, on the stream."""
        self._compute(0)

    def look(self) -> None:
        """Computes what `changed` compares, on the stream."""
        self._compute(1)

    def is_intact(self) -> bool:
        """Whether nothing changed since the seal; waits for the stream."""
        self.look()
        return not self.changed()

    def changed(self) -> tuple[Segment, ...]:
        """The segments that differ between seal and look; waits for the stream."""
        sums = self._kernels.download(self._sums)
        return tuple(self._segments[index] for index in np.flatnonzero(sums[0] != sums[1]) if self._segments)

    def _compute(self, row: int) -> None:
        if self._segments:
            sums = int(self._sums.data.ptr) + row * self._sums.strides[0]
            self._kernels.checksums(int(self._table.data.ptr), sums, len(self._segments), self._key)


def whole_array(label: str, array: "cupy.ndarray") -> Segment:
    """A contiguous array as a segment (a last half word of a 16-bit array is left out)."""
    return Segment(label, int(array.data.ptr), int(array.nbytes) // 4)


def random_offset() -> int:
    """Bytes, aligned: where in an allocation that is larger by SPREAD_BYTES something may begin."""
    return secrets.randbelow(SPREAD_BYTES // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def array_anywhere(num_elements: int, element_type: str) -> "cupy.ndarray":
    """An array of a size, not filled, at an address that the allocator does not choose alone.

    Raises cupy.cuda.memory.OutOfMemoryError.
    """
    dtype = carrier_of(element_type)
    num_bytes = num_elements * dtype.itemsize
    memory = cupy.cuda.alloc(num_bytes + SPREAD_BYTES)
    return cupy.ndarray((num_elements,), dtype=dtype, memptr=memory + random_offset())


def uploaded(array: npt.NDArray[Any], stream: "cupy.cuda.Stream") -> "cupy.ndarray":
    """A large host array in device memory. By way of `asarray` CuPy would first take pinned memory of its size, which
    takes longer than the copy, and keep it.

    Raises cupy.cuda.memory.OutOfMemoryError.
    """
    host = carried(np.ascontiguousarray(array))
    with cuda_errors():
        there = cupy.empty(host.shape, dtype=host.dtype)
        if host.nbytes:
            bytes_from, bytes_to = host.ctypes.data, int(there.data.ptr)
            runtime.memcpyAsync(bytes_to, bytes_from, host.nbytes, runtime.memcpyHostToDevice, stream.ptr)
            stream.synchronize()  # The caller may let go of its memory.
    return there


def uploaded_table(rows: Sequence[Sequence[int]], stream: "cupy.cuda.Stream") -> "cupy.ndarray":
    """Rows of uint64 for a kernel of ours. The driver has taken a copy by the time it returns: they are few, and each
    checked run has new ones."""
    host = np.array(rows, dtype=np.uint64)
    with cuda_errors():
        there = cupy.empty(host.shape, dtype=host.dtype)
        runtime.memcpyAsync(int(there.data.ptr), host.ctypes.data, host.nbytes, runtime.memcpyHostToDevice, stream.ptr)
    return there


class Arena:
    """The buffers of one program between guard zones, in one allocation; they can be placed anew at other offsets."""

    def __init__(self, plans: Sequence[BufferPlan], kernels: DeviceKernels) -> None:
        """Raises cupy.cuda.memory.OutOfMemoryError."""
        self._kernels = kernels
        self._plans = tuple(plans)
        self._sizes = {plan.name: plan.num_bytes for plan in plans}
        self.num_bytes = arena_bytes(plans) + SPREAD_BYTES
        with cuda_errors():
            self._memory = cupy.cuda.alloc(self.num_bytes)
        self._addresses: dict[str, int] = {}
        self._sealed = SealedMemory((), kernels)
        self.place(random_placement())

    def place(self, placement: Placement) -> None:
        """Gives every buffer the address of a placement and poisons everything."""
        shifts = [placement.shift(plan.name) for plan in self._plans]
        starts = {name: placement.offset + start for name, start in buffer_starts(self._plans, shifts).items()}
        base = int(self._memory.ptr)
        self._addresses = {name: base + start for name, start in starts.items()}
        with cuda_errors():
            runtime.memsetAsync(base, POISON, self.num_bytes, self._kernels.stream.ptr)
        self._sealed = SealedMemory(guarded_segments(self._plans, starts, base, self.num_bytes), self._kernels)

    def address(self, name: str) -> int:
        """Device address of a buffer in the present placement."""
        return self._addresses[name]

    def size(self, name: str) -> int:
        """Bytes of a buffer."""
        return self._sizes[name]

    def num_words(self, name: str) -> int:
        """Whole 4-byte words of a buffer."""
        return self._sizes[name] // 4

    def copy_in(self, name: str, source: "cupy.ndarray") -> None:
        """Copies an array of exactly the buffer's size into it, on the stream."""
        if source.nbytes != self._sizes[name]:
            raise ValueError(f"{name}: {source.nbytes} bytes for a buffer of {self._sizes[name]}")
        self._copy(self._addresses[name], int(source.data.ptr), source.nbytes)

    def copy_out(self, name: str, target: "cupy.ndarray") -> None:
        """Copies a buffer into an array of exactly its size, on the stream."""
        if target.nbytes != self._sizes[name]:
            raise ValueError(f"{name}: {target.nbytes} bytes for a buffer of {self._sizes[name]}")
        self._copy(int(target.data.ptr), self._addresses[name], target.nbytes)

    def copy_within(self, source: str, target: str) -> None:
        """Copies a buffer into another of its size, on the stream."""
        self._copy(self._addresses[target], self._addresses[source], self._sizes[source])

    def write(self, address: int, value: "cupy.ndarray") -> None:
        """Copies an array to an address within a buffer, on the stream."""
        self._copy(address, int(value.data.ptr), value.nbytes)

    def _copy(self, target: int, source: int, num_bytes: int) -> None:
        if num_bytes:
            with cuda_errors():
                runtime.memcpyAsync(target, source, num_bytes, runtime.memcpyDeviceToDevice, self._kernels.stream.ptr)

    def poison(self, name: str) -> None:
        """Fills a buffer with NaN, on the stream."""
        with cuda_errors():
            runtime.memsetAsync(self._addresses[name], POISON, self._sizes[name], self._kernels.stream.ptr)

    def scatter(self, name: str) -> None:
        """Fills a buffer with finite numbers that nobody knows, on the stream."""
        self._kernels.refresh(self._addresses[name], self.num_words(name), secrets.randbits(63), "float32")

    def rewrite(self, name: str) -> None:
        """Writes a buffer as it is, on the stream."""
        self._kernels.rewrite(self._addresses[name], self.num_words(name))

    def seal(self) -> None:
        """Remembers everything that must not change from here on, on the stream."""
        self._sealed.seal()

    def look(self) -> None:
        """Computes what `changed` compares, on the stream."""
        self._sealed.look()

    def changed(self) -> tuple[Segment, ...]:
        """Guard zones and read-only buffers that changed between seal and look; waits for the stream."""
        return self._sealed.changed()
