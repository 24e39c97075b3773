"""The evaluator's own kernels on the device (own_kernels.cu, draw_kernels.cu, replay_kernels.cu), as methods."""

import ctypes
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
from cupy.cuda import driver, runtime

from services.evaluator.cuda.carriers import NARROW, carrier_of, element_name
from services.evaluator.cuda.changes import Drawn, Made, Target, accuracy
from services.evaluator.cuda.launch import Launch, cuda_errors
from services.evaluator.device import Draw
from sparsesmith.cuda.driver import KernelArguments
from sparsesmith.cuda.options import CODE_OPTIONS
from sparsesmith_proto.message import ElementType

SOURCES = ("own_kernels.cu", "draw_kernels.cu", "replay_kernels.cu")
"""One translation unit."""
_MAX_COLUMNS_A_WARP = 32
_BLOCK = 256
_VECTOR_BYTES = 16
_LINE_BYTES = 128
_VECTORS_A_BLOCK = _BLOCK * 8
_LATE_BLOCKS = 8
"""Few, so that the next kernel finds room beside them."""
_LATEST_NANOSECONDS = 30_000
"""A late write comes after a random time up to this."""
LATE_LEAD_US = 60.0
"""In front of a late write: the host must have queued the program that may start beside it."""
_MAX_SHARED_ATTRIBUTE = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin
_STACK_BLOCK = 1024
_STACK_BLOCKS_AN_SM = 2


@dataclass(frozen=True)
class ColumnSizes:
    """What the sizes of the columns of a mixed draw come from."""

    stream: int
    key_low: int
    key_high: int
    smallest: float
    largest: float

    @property
    def arguments(self) -> tuple[ctypes.c_double | int, ...]:
        """The structure Sizes of draw_kernels.cu."""
        return (
            self.stream,
            self.key_low,
            self.key_high,
            ctypes.c_double(self.smallest),
            ctypes.c_double(self.largest),
        )


class DeviceKernels:
    """Compiled once a process (CuPy caches the machine code on disk); everything runs on `stream`."""

    def __init__(self, stream: "cupy.cuda.Stream", num_sms: int) -> None:
        self.stream = stream
        self._num_sms = num_sms
        self._functions: dict[str, int] = {}

    @cached_property
    def _module(self) -> "cupy.RawModule":
        code = "".join(Path(__file__).with_name(name).read_text() for name in SOURCES)
        return cupy.RawModule(code=code, options=CODE_OPTIONS)

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

    def scale(self, numbers: int, length: int, factor: float, element_type: str) -> None:
        """Multiplies an array in place."""
        with cuda_errors():
            self._launch(
                f"scale_{element_type}", self._blocks_for(length), _BLOCK, numbers, length, ctypes.c_double(factor)
            )

    def refresh(self, x: int, length: int, seed: int, element_type: str) -> None:
        """A new pseudo-random vector in [-1, 1) in place."""
        with cuda_errors():
            self._launch(f"refresh_{element_type}", self._blocks_for(length), _BLOCK, x, length, seed)

    def fill(self, kind: str, numbers: "cupy.ndarray", stream: int, key_low: int, key_high: int) -> None:
        """Draws every number of an array; `stream` tells apart arrays under one key. Kinds: see draw_kernels.cu."""
        with cuda_errors():
            self._launch(
                f"fill_{kind}_{element_name(numbers.dtype)}", self._blocks_for(-(-numbers.size // 4)), _BLOCK,
                _address(numbers), int(numbers.size), stream, key_low, key_high,
            )  # fmt: skip

    def pick(
        self, dense: "cupy.ndarray", col_indices: "cupy.ndarray", num_dense_cols: int, stream: int, low: int, high: int
    ) -> None:
        """Each dense column of an operand of zeros picks out one column of A; `low`, `high`: the key."""
        with cuda_errors():
            self._launch(
                f"pick_{element_name(dense.dtype)}", self._blocks_for(num_dense_cols), _BLOCK,
                _address(dense), _address(col_indices), int(col_indices.size), num_dense_cols, stream, low, high,
            )  # fmt: skip

    def refer(
        self,
        arrays: Sequence["cupy.ndarray"],
        num_rows: int,
        num_dense_cols: int,
        element_type: ElementType,
        *,
        sees_single_products: bool,
    ) -> None:
        """The float64 product. `arrays`: row offsets, columns, values, dense; to fill: reference, magnitude, bound."""
        width = min(_MAX_COLUMNS_A_WARP, 1 << (num_dense_cols - 1).bit_length())
        num_warps = num_rows * -(-num_dense_cols // width)
        with cuda_errors():
            self._launch(
                f"refer_{element_name(arrays[2].dtype)}", self._blocks_for(32 * num_warps), _BLOCK,
                *map(_address, arrays), num_rows, num_dense_cols, width,
                *accuracy(element_type, sees_single_products=sees_single_products),
            )  # fmt: skip

    def mix_columns(self, dense: "cupy.ndarray", num_dense_cols: int, sizes: ColumnSizes) -> None:
        """Gives the columns of A, rows of a uniform dense operand, sizes of their own (`checking.draws.mixed`)."""
        num_cols = int(dense.size) // num_dense_cols
        with cuda_errors():
            self._launch(
                f"mix_columns_{element_name(dense.dtype)}", self._blocks_for(num_cols), _BLOCK,
                _address(dense), num_cols, num_dense_cols, *sizes.arguments,
            )  # fmt: skip

    def mix_rows(
        self,
        row_offsets: "cupy.ndarray",
        col_indices: "cupy.ndarray",
        values: "cupy.ndarray",
        dense: "cupy.ndarray",
        num_dense_cols: int,
        sizes: ColumnSizes,
        tiny: float,
    ) -> None:
        """Makes uniform values mixed (`checking.draws.mixed`), behind the columns of `dense` and with their sizes."""
        num_rows = int(row_offsets.size) - 1
        with cuda_errors():
            self._launch(
                f"mix_rows_{element_name(values.dtype)}", self._blocks_for(32 * num_rows), _BLOCK,
                _address(row_offsets), _address(col_indices), _address(values), _address(dense), num_rows,
                num_dense_cols, *sizes.arguments, ctypes.c_double(tiny),
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
        """Lets the next kernel start, waits for a random time, then writes.

        table: [regions, 3] of source (0: NaN), target, bytes; written in this order.
        """
        with cuda_errors():
            self._launch(
                "write_late", (_LATE_BLOCKS, 1, 1), _BLOCK, int(table.data.ptr), len(table), late_nanoseconds()
            )

    def rewrite(self, address: int, num_words: int) -> None:
        """Writes 4-byte words as they are."""
        with cuda_errors():
            self._launch("rewrite", self._blocks_for(num_words), _BLOCK, address, num_words)

    def litter(self, key: int) -> None:
        """Leaves numbers of ours where a kernel could find what another left.

        In shared memory and registers of every multiprocessor, and in the first bytes of every thread's stack.
        """
        with cuda_errors():
            self._litter_block(key).enqueue(self.stream.ptr)
            grid = (_STACK_BLOCKS_AN_SM * self._num_sms, 1, 1)
            self._launch("litter_stack", grid, _STACK_BLOCK, key, int(self._never.data.ptr))

    def _litter_block(self, key: int) -> Launch:
        launch = self.prepared(
            "litter_block", (self._num_sms, 1, 1), _BLOCK, self._shared_bytes // 4, key, int(self._never.data.ptr)
        )
        return replace(launch, shared_bytes=self._shared_bytes)

    @cached_property
    def _shared_bytes(self) -> int:
        """All that a block may have; `litter_block` is allowed to use it from now on."""
        most = int(runtime.deviceGetAttribute(_MAX_SHARED_ATTRIBUTE, runtime.getDevice()))
        self.prepared("litter_block", (1, 1, 1), _BLOCK)
        driver.funcSetAttribute(
            self._functions["litter_block"], driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most
        )
        return most

    @cached_property
    def _never(self) -> "cupy.ndarray":
        """Where a kernel claims to write, so that the compiler leaves its work in place."""
        return cupy.zeros(1, dtype=np.uint32)

    def change(self, drawn: Drawn, made: Made, target: Target, late_ns: int = 0) -> None:
        """Makes a change (replay_kernels.cu); `late_ns`: behind the start of the next kernel."""
        num_slots = target.num_slots if made.of_values and target.sources else 1
        with cuda_errors():
            self._launch(
                f"change_{drawn.element_type}", self._blocks_for(num_slots), _BLOCK, *drawn.arguments(made),
                target.sources, target.num_slots, target.values, target.dense, late_ns,
            )  # fmt: skip

    def account(self, drawn: Drawn, made: Made, draw: Draw, lost: float) -> None:
        """What a change does to the reference, magnitude and bound of a draw that is as it was before."""
        length = drawn.num_dense_cols if made.of_values else drawn.nnz
        arrays = (draw.values, draw.dense, draw.reference, draw.magnitude, draw.bound)
        with cuda_errors():
            self._launch(
                f"account_{drawn.element_type}", self._blocks_for(length), _BLOCK, *drawn.arguments(made),
                *map(_address, arrays), ctypes.c_double(lost),
            )  # fmt: skip

    def verify(self, output: "cupy.ndarray", draw: Draw, found: "cupy.ndarray") -> None:
        """Compares a result with a draw's reference. found: uint64 [3], zeros; see `Found`."""
        arrays = (draw.reference, draw.magnitude, draw.bound)
        with cuda_errors():
            self._launch(
                f"verify_{element_name(output.dtype)}", self._blocks_for(output.size), _BLOCK,
                _address(output), *map(_address, arrays), int(output.size), _address(found),
            )  # fmt: skip

    def largest_error(
        self, output: "cupy.ndarray", reference: "cupy.ndarray", bound: "cupy.ndarray", magnitude: "cupy.ndarray"
    ) -> float:
        """See `device.largest_error`, of float64; waits for the stream."""
        worst = self._worst
        with cuda_errors():
            runtime.memsetAsync(_address(worst), 0, worst.nbytes, self.stream.ptr)
            self._launch(
                "largest_error", self._blocks_for(output.size), _BLOCK,
                *map(_address, (output, reference, bound, magnitude)), int(output.size), _address(worst),
            )  # fmt: skip
        return float(self.download(worst).view(np.float64)[0])

    @cached_property
    def _worst(self) -> "cupy.ndarray":
        return cupy.empty(1, dtype=np.uint64)

    def widened(self, array: "cupy.ndarray") -> "cupy.ndarray":
        """What results are judged as: numbers of 16 and 32 bits as float64, any other type as it is.

        CuPy compiles its own kernels with -ftz=true: whatever they do with float32 takes subnormal numbers for zero.
        """
        element_type = element_name(array.dtype)
        if element_type not in (*NARROW, "float32"):
            return array
        with cuda_errors():
            return self._converted(f"widen_{element_type}", cupy.ascontiguousarray(array), np.dtype(np.float64))

    def narrowed(self, array: "cupy.ndarray", dtype: "np.dtype[Any]") -> "cupy.ndarray":
        """Numbers of float64 rounded to another type, as programs are given and leave them, subnormal ones, too."""
        if dtype.name not in (*NARROW, "float32") or array.dtype != np.float64:
            return array.astype(dtype)
        with cuda_errors():
            return self._converted(f"narrow_{dtype.name}", cupy.ascontiguousarray(array), carrier_of(dtype))

    def _converted(self, kernel: str, numbers: "cupy.ndarray", dtype: "np.dtype[Any]") -> "cupy.ndarray":
        found = cupy.empty(numbers.shape, dtype=dtype)
        size = int(found.size)
        self._launch(kernel, self._blocks_for(size), _BLOCK, _address(numbers), _address(found), size)
        return found

    def emptiness(self) -> Launch:
        """A kernel that does nothing."""
        return self.prepared("empty", (1, 1, 1), 1)


def late_nanoseconds() -> int:
    """How long what is written late is waited for: random, so that nobody can sit it out."""
    return 1_000 + secrets.randbelow(_LATEST_NANOSECONDS)


def _address(array: "cupy.ndarray") -> int:
    return int(array.data.ptr)
