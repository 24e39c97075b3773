"""The evaluator's own kernels on the device (own_kernels.cu, draw_kernels.cu), as methods."""

import ctypes
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import cupy
import numpy as np
import numpy.typing as npt
from cupy.cuda import runtime

from services.evaluator.cuda.launch import Launch, cuda_errors
from sparsesmith.cuda.driver import KernelArguments

_SOURCES = tuple(Path(__file__).with_name(name) for name in ("own_kernels.cu", "draw_kernels.cu"))
_MAX_COLUMNS_A_WARP = 32
_BLOCK = 256
_VECTOR_BYTES = 16
_LINE_BYTES = 128
_VECTORS_A_BLOCK = _BLOCK * 8
_LATE_BLOCKS = 8
"""Few, so that the next kernel finds room beside them."""
_LATE_NANOSECONDS = 20_000


class DeviceKernels:
    """Compiled once a process (CuPy caches the machine code on disk); everything runs on `stream`."""

    def __init__(self, stream: "cupy.cuda.Stream", num_sms: int) -> None:
        self.stream = stream
        self._num_sms = num_sms
        self._functions: dict[str, int] = {}

    @cached_property
    def _module(self) -> "cupy.RawModule":
        return cupy.RawModule(code="".join(path.read_text() for path in _SOURCES), options=("-std=c++17",))

    def _launch(self, name: str, grid: tuple[int, int, int], block: int, *arguments: ctypes.c_double | int) -> None:
        self.prepared(name, grid, block, *arguments).enqueue(self.stream.ptr)

    def prepared(self, name: str, grid: tuple[int, int, int], block: int, *arguments: ctypes.c_double | int) -> Launch:
        """A launch to be enqueued later or captured."""
        if name not in self._functions:
            self._functions[name] = int(self._module.get_function(name).kernel.ptr)
        return Launch(self._functions[name], grid, (block, 1, 1), 0, KernelArguments(arguments))

    def _blocks_for(self, length: int) -> tuple[int, int, int]:
        return (max(1, min(-(-length // _BLOCK), 16 * self._num_sms)), 1, 1)

    def checksums(self, table: int, sums: int, num_segments: int, key: int) -> None:
        """Keyed checksum of each segment into sums[num_segments]. table: [num_segments, 2] address and words."""
        with cuda_errors():
            runtime.memsetAsync(sums, 0, 8 * num_segments, self.stream.ptr)
            self._launch("checksums", (4 * self._num_sms, num_segments, 1), _BLOCK, table, key, sums)

    def download(self, array: "cupy.ndarray") -> npt.NDArray[np.uint64]:
        """The array on the host, after everything on the stream has finished."""
        with cuda_errors():
            self.stream.synchronize()
            host: npt.NDArray[np.uint64] = array.get(stream=self.stream)
        return host

    def apply_masks(self, table: int, num_segments: int, key: int) -> None:
        """Hides 8-byte numbers in place, a second time shows them. table: [num_segments, 2] address and length."""
        with cuda_errors():
            self._launch("apply_masks", (4 * self._num_sms, num_segments, 1), _BLOCK, table, key)

    def pack(self, sources: int, values: int, packed: int, num_slots: int, element_type: str) -> None:
        """Values in CSR order to stored order by their positions; -1 becomes zero."""
        with cuda_errors():
            self._launch(
                f"pack_{element_type}", self._blocks_for(num_slots), _BLOCK, sources, values, packed, num_slots
            )

    def refresh(self, x: int, length: int, seed: int, element_type: str) -> None:
        """A new pseudo-random vector in [-1, 1) in place."""
        with cuda_errors():
            self._launch(f"refresh_{element_type}", self._blocks_for(length), _BLOCK, x, length, seed)

    def fill(self, kind: str, numbers: "cupy.ndarray", stream: int, key_low: int, key_high: int) -> None:
        """Draws every number of an array; `stream` tells apart arrays under one key. Kinds: see draw_kernels.cu."""
        with cuda_errors():
            self._launch(
                f"fill_{kind}_{numbers.dtype.name}", self._blocks_for(-(-numbers.size // 4)), _BLOCK,
                _address(numbers), int(numbers.size), stream, key_low, key_high,
            )  # fmt: skip

    def pick(
        self, dense: "cupy.ndarray", col_indices: "cupy.ndarray", num_dense_cols: int, stream: int, low: int, high: int
    ) -> None:
        """Each dense column of an operand of zeros picks out one column of A; `low`, `high`: the key."""
        with cuda_errors():
            self._launch(
                f"pick_{dense.dtype.name}", self._blocks_for(num_dense_cols), _BLOCK,
                _address(dense), _address(col_indices), int(col_indices.size), num_dense_cols, stream, low, high,
            )  # fmt: skip

    def refer(
        self,
        arrays: Sequence["cupy.ndarray"],
        num_rows: int,
        num_dense_cols: int,
        tolerance: float,
        long_row: float,
    ) -> None:
        """The float64 product. `arrays`: row offsets, columns, values, dense; to fill: reference, magnitude, bound."""
        width = min(_MAX_COLUMNS_A_WARP, 1 << (num_dense_cols - 1).bit_length())
        num_warps = num_rows * -(-num_dense_cols // width)
        with cuda_errors():
            self._launch(
                f"refer_{arrays[2].dtype.name}", self._blocks_for(32 * num_warps), _BLOCK,
                *map(_address, arrays), num_rows, num_dense_cols, width,
                ctypes.c_double(tolerance), ctypes.c_double(long_row),
            )  # fmt: skip

    def copying(self, source: int, target: int, num_bytes: int) -> Launch:
        """A copy of a multiple of 16 bytes."""
        vectors = num_bytes // _VECTOR_BYTES
        return self.prepared("copy_vectors", (-(-vectors // _VECTORS_A_BLOCK), 1, 1), _BLOCK, source, target, vectors)

    def flush(self, buffer: int, num_bytes: int) -> None:
        """Reads and rewrites a buffer: with twice the L2's size nothing else stays in the L2."""
        with cuda_errors():
            self._launch("flush", (8 * self._num_sms, 1, 1), _BLOCK, buffer, num_bytes // _VECTOR_BYTES)
            self._launch("give_way", (8 * self._num_sms, 1, 1), _BLOCK, buffer, num_bytes // _LINE_BYTES)

    def delay(self, microseconds: float) -> None:
        """Keeps the stream busy for about this long."""
        with cuda_errors():
            self._launch("delay", (1, 1, 1), 1, int(microseconds * 1000))

    def write_late(self, table: "cupy.ndarray") -> None:
        """Lets the next kernel start, waits, then writes. table: [regions, 3] of source (0: NaN), target, words."""
        with cuda_errors():
            self._launch("write_late", (_LATE_BLOCKS, 1, 1), _BLOCK, int(table.data.ptr), len(table), _LATE_NANOSECONDS)

    def emptiness(self) -> Launch:
        """A kernel that does nothing."""
        return self.prepared("empty", (1, 1, 1), 1)


def _address(array: "cupy.ndarray") -> int:
    return int(array.data.ptr)
