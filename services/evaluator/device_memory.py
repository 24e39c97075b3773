"""Guarded device memory: every buffer a kernel sees lies between guard zones that are checked afterwards.

One allocation holds all buffers of a program. Guard zones and everything that no kernel may write (indices, values, x)
are covered by keyed checksums, computed on the device before and after a launch. All other bytes are 0xFF: read as a
floating-point number that is NaN, read as an index it is -1.

What this does not protect against: reads outside a buffer whose value is not used, and writes that land in another
allocation (the draws and the uploaded formats have checksums of their own, looked at from time to time).
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cupy
import numpy as np
from cupy.cuda import runtime

from services.evaluator.cuda_launch import cuda_errors
from services.evaluator.device import ALIGNMENT_BYTES, GUARD_BYTES
from services.evaluator.device_kernels import DeviceKernels

POISON = 0xFF
_MAX_SHIFT = 16
"""A buffer is moved by 0 to 15 times ALIGNMENT_BYTES from one placement to the next."""


@dataclass(frozen=True)
class BufferPlan:
    """One buffer to be placed."""

    name: str
    num_bytes: int
    writable: bool
    """Outputs and scratch; everything else must come back unchanged."""


@dataclass(frozen=True)
class Segment:
    """A stretch of device memory that must not change."""

    label: str
    address: int
    num_words: int
    """4-byte words."""
    is_guard: bool = False


class SealedMemory:
    """Segments whose checksums are remembered and compared later, on the device."""

    def __init__(self, segments: Sequence[Segment], kernels: DeviceKernels) -> None:
        self._segments = tuple(segments)
        self._kernels = kernels
        self._key = secrets.randbits(63)
        rows = [[segment.address, segment.num_words] for segment in self._segments] or [[0, 0]]
        with cuda_errors():
            self._table = cupy.asarray(np.array(rows, dtype=np.uint64))
            self._sums = cupy.empty((2, len(rows)), dtype=np.uint64)

    def seal(self) -> None:
        """Remembers the contents as of now, on the stream."""
        self._compute(0)

    def look(self) -> None:
        """Computes what `changed` compares, on the stream."""
        self._compute(1)

    def changed(self) -> tuple[Segment, ...]:
        """The segments that differ between seal and look; waits for the stream."""
        sums = self._kernels.download(self._sums)
        return tuple(self._segments[index] for index in np.flatnonzero(sums[0] != sums[1]) if self._segments)

    def _compute(self, row: int) -> None:
        if self._segments:
            sums = self._sums[row]
            self._kernels.checksums(int(self._table.data.ptr), int(sums.data.ptr), len(self._segments), self._key)


def whole_array(label: str, array: "cupy.ndarray") -> Segment:
    """A contiguous array as a segment (a last half word of a 16-bit array is left out)."""
    return Segment(label, int(array.data.ptr), int(array.nbytes) // 4)


class Arena:
    """The buffers of one program between guard zones, in one allocation; they can be placed anew at other offsets."""

    def __init__(self, plans: Sequence[BufferPlan], kernels: DeviceKernels) -> None:
        """Raises cupy.cuda.memory.OutOfMemoryError."""
        self._kernels = kernels
        self._plans = tuple(plans)
        self._sizes = {plan.name: plan.num_bytes for plan in plans}
        self.num_bytes = arena_bytes(plans)
        with cuda_errors():
            self._memory = cupy.cuda.alloc(self.num_bytes)
        self._addresses: dict[str, int] = {}
        self._sealed = SealedMemory((), kernels)
        self.place(shifted=False)

    def place(self, *, shifted: bool) -> None:
        """Gives every buffer a new address (a fixed one, or a random one when shifted) and poisons everything."""
        shifts = [secrets.randbelow(_MAX_SHIFT) if shifted else 0 for _ in self._plans]
        starts = buffer_starts(self._plans, shifts)
        base = int(self._memory.ptr)
        self._addresses = {name: base + start for name, start in starts.items()}
        with cuda_errors():
            runtime.memsetAsync(base, POISON, self.num_bytes, self._kernels.stream.ptr)
        self._sealed = SealedMemory(guarded_segments(self._plans, starts, base, self.num_bytes), self._kernels)

    def address(self, name: str) -> int:
        """Device address of a buffer in the present placement."""
        return self._addresses[name]

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

    def _copy(self, target: int, source: int, num_bytes: int) -> None:
        if num_bytes:
            with cuda_errors():
                runtime.memcpyAsync(target, source, num_bytes, runtime.memcpyDeviceToDevice, self._kernels.stream.ptr)

    def poison(self, name: str) -> None:
        """Fills a buffer with NaN, on the stream."""
        with cuda_errors():
            runtime.memsetAsync(self._addresses[name], POISON, self._sizes[name], self._kernels.stream.ptr)

    def seal(self) -> None:
        """Remembers everything that must not change from here on, on the stream."""
        self._sealed.seal()

    def look(self) -> None:
        """Computes what `changed` compares, on the stream."""
        self._sealed.look()

    def changed(self) -> tuple[Segment, ...]:
        """Guard zones and read-only buffers that changed between seal and look; waits for the stream."""
        return self._sealed.changed()


def arena_bytes(plans: Sequence[BufferPlan]) -> int:
    """Device memory that an arena of these buffers takes."""
    last = [_MAX_SHIFT - 1] * len(plans)
    starts = buffer_starts(plans, last)
    end = max((starts[plan.name] + plan.num_bytes for plan in plans), default=0)
    return _round_up(end + GUARD_BYTES, ALIGNMENT_BYTES)


def buffer_starts(plans: Sequence[BufferPlan], shifts: Sequence[int]) -> Mapping[str, int]:
    """Start of each buffer within the arena, for shifts in units of ALIGNMENT_BYTES."""
    starts: dict[str, int] = {}
    cursor = 0
    for plan, shift in zip(plans, shifts, strict=True):
        starts[plan.name] = _round_up(cursor + GUARD_BYTES, ALIGNMENT_BYTES) + shift * ALIGNMENT_BYTES
        cursor = starts[plan.name] + plan.num_bytes
    return starts


def guarded_segments(
    plans: Sequence[BufferPlan], starts: Mapping[str, int], base: int, num_bytes: int
) -> tuple[Segment, ...]:
    """Guard zones and read-only buffers, in the order of the arena: all of it but what kernels may write."""
    segments: list[Segment] = []
    cursor = 0
    before = ""
    for plan in plans:
        start = starts[plan.name]
        label = f"{before} and {plan.name}" if before else f"the start and {plan.name}"
        segments.append(Segment(f"between {label}", base + cursor, (start - cursor) // 4, is_guard=True))
        # A 16-bit array of odd length ends in the middle of a word: the word belongs to the buffer.
        end = _round_up(start + plan.num_bytes, 4)
        if not plan.writable:
            segments.append(Segment(plan.name, base + start, (end - start) // 4))
        cursor = end
        before = plan.name
    segments.append(Segment(f"behind {before}", base + cursor, (num_bytes - cursor) // 4, is_guard=True))
    return tuple(segments)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
