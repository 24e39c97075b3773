"""Every cuSPARSE routine that applies to a workload: prepared, checked and timed by the code that times candidates.

Workspace and preprocessing lie outside the timing; each routine gets a matrix descriptor of its own, because cuSPARSE
keeps what preprocessing found in the descriptor. A routine that the library refuses, that cannot be captured into a
graph or whose result is wrong is left out with a logged reason. Arithmetic is that of the element type, never TF32.
"""

import logging
import time
from dataclasses import dataclass

import cupy
import numpy as np
import numpy.typing as npt

from services.evaluator import cusparse
from services.evaluator.correctness import judge
from services.evaluator.cuda_launch import LaunchRefused, cuda_errors
from services.evaluator.cusparse import CuSparse, CuSparseRefused, Descriptor, Product
from services.evaluator.device import Draw, Ran
from services.evaluator.device_kernels import DeviceKernels
from services.evaluator.routines import BLOCK_SIZES, DEFAULT_ROUTINE, Routine, routines_for, useful_block_sizes
from services.evaluator.timed_sequence import Instruments, TimedSequence
from services.evaluator.timing import FULL, TimingBudget
from sparsesmith.domain.formats import complete_parameters, format_named
from sparsesmith.domain.formats.format import Layout
from sparsesmith.domain.pattern import Pattern
from sparsesmith.errors import InvalidProgram, Unavailable
from sparsesmith_proto.kernel import Baselines, BaselineTiming, Mismatch, Workload

SELL_SLICE = 32
MAX_SELL_PADDING = 4.0
"""Sliced-ELL is tried up to this many slots a nonzero."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class StoredOperand:
    """A in one of the library's formats, on the device, values still to be filled in."""

    descriptor: Descriptor
    arrays: tuple["cupy.ndarray", ...]
    values: "cupy.ndarray"
    value_sources: "cupy.ndarray | None"
    num_rows: int
    """Rows and columns as the library sees them: blocks pad them."""
    num_cols: int
    conversion_ms: float
    """Host time to convert from CSR."""


class Storage:
    """Builds A in the library's formats."""

    def __init__(self, library: CuSparse, pattern: Pattern, workload: Workload) -> None:
        self._library = library
        self._pattern = pattern
        self._type = workload.element_type

    def build(self, routine: Routine) -> StoredOperand:
        """Raises CuSparseRefused or InvalidProgram where the format does not suit the pattern."""
        match routine.storage:
            case "csr":
                return self._csr()
            case "coo":
                return self._coo()
            case "sell":
                return self._sell()
            case "bsr":
                return self._bsr(routine.block_size)
        raise ValueError(f"unknown storage {routine.storage!r}")

    @property
    def _shape(self) -> cusparse.MatrixShape:
        return cusparse.MatrixShape(self._pattern.num_rows, self._pattern.num_cols, self._pattern.nnz)

    def _csr(self) -> StoredOperand:
        offsets, columns = cupy.asarray(self._pattern.row_offsets), cupy.asarray(self._pattern.col_indices)
        values = cupy.empty(self._pattern.nnz, dtype=self._type)
        descriptor = cusparse.csr(self._library, self._shape, *_addresses(offsets, columns, values), self._type)
        return self._stored(descriptor, (offsets, columns), values, None, 0.0)

    def _coo(self) -> StoredOperand:
        start = time.perf_counter()
        host_rows = self._pattern.row_indices()
        conversion_ms = _since_ms(start)
        rows, columns = cupy.asarray(host_rows), cupy.asarray(self._pattern.col_indices)
        values = cupy.empty(self._pattern.nnz, dtype=self._type)
        descriptor = cusparse.coo(self._library, self._shape, *_addresses(rows, columns, values), self._type)
        return self._stored(descriptor, (rows, columns), values, None, conversion_ms)

    def _sell(self) -> StoredOperand:
        start = time.perf_counter()
        layout = _layout(self._pattern, "sell", slice=SELL_SLICE, sigma=1)
        if layout.num_slots > MAX_SELL_PADDING * self._pattern.nnz:
            raise CuSparseRefused(f"sliced ELL would store {layout.num_slots} slots for {self._pattern.nnz} nonzeros")
        sources = _sources(layout)
        # The library marks padding by a column of -1, our own format repeats a column that exists.
        host_columns = np.where(sources < 0, np.int32(-1), layout.indices["col_indices"]).astype(np.int32)
        conversion_ms = _since_ms(start)
        offsets, columns = cupy.asarray(layout.indices["slice_offsets"]), cupy.asarray(host_columns)
        values = cupy.empty(layout.num_slots, dtype=self._type)
        descriptor = cusparse.sliced_ell(
            self._library, self._shape, layout.num_slots, SELL_SLICE, *_addresses(offsets, columns, values), self._type
        )
        return self._stored(descriptor, (offsets, columns), values, cupy.asarray(sources), conversion_ms)

    def _bsr(self, size: int) -> StoredOperand:
        start = time.perf_counter()
        layout = _layout(self._pattern, "bsr", block_rows=size, block_cols=size)
        conversion_ms = _since_ms(start)
        num_block_rows, num_block_cols = -(-self._pattern.num_rows // size), -(-self._pattern.num_cols // size)
        num_blocks = layout.num_slots // (size * size)
        offsets = cupy.asarray(layout.indices["block_row_offsets"])
        columns = cupy.asarray(layout.indices["block_col_indices"])
        values = cupy.empty(layout.num_slots, dtype=self._type)
        descriptor = cusparse.bsr(
            self._library, num_block_rows, num_block_cols, num_blocks, size,
            *_addresses(offsets, columns, values), self._type,
        )  # fmt: skip
        sources = cupy.asarray(_sources(layout))
        return StoredOperand(
            descriptor, (offsets, columns), values, sources, num_block_rows * size, num_block_cols * size, conversion_ms
        )

    def _stored(
        self,
        descriptor: Descriptor,
        arrays: tuple["cupy.ndarray", ...],
        values: "cupy.ndarray",
        sources: "cupy.ndarray | None",
        conversion_ms: float,
    ) -> StoredOperand:
        pattern = self._pattern
        return StoredOperand(descriptor, arrays, values, sources, pattern.num_rows, pattern.num_cols, conversion_ms)


def _layout(pattern: Pattern, format_name: str, **parameters: int) -> Layout:
    format_ = format_named(format_name)
    return format_.build(pattern, complete_parameters(format_, parameters))


def _sources(layout: Layout) -> npt.NDArray[np.int32]:
    if layout.value_sources is None:
        return np.arange(layout.num_slots, dtype=np.int32)
    return layout.value_sources


def _addresses(offsets: "cupy.ndarray", indices: "cupy.ndarray", values: "cupy.ndarray") -> tuple[int, int, int]:
    return int(offsets.data.ptr), int(indices.data.ptr), int(values.data.ptr)


def _since_ms(start: float) -> float:
    return (time.perf_counter() - start) * 1e3


class PreparedRoutine:
    """A routine ready to be launched, with operands of its own."""

    def __init__(
        self,
        routine: Routine,
        storage: Storage,
        library: CuSparse,
        workload: Workload,
        num_rows: int,
        kernels: DeviceKernels,
    ) -> None:
        """Raises CuSparseRefused, InvalidProgram, LaunchRefused, DeviceLost."""
        self._workload = workload
        self._num_rows = num_rows
        self._kernels = kernels
        with cuda_errors():
            self._stored = storage.build(routine)
            columns = workload.num_dense_cols
            self._dense = cupy.zeros(self._stored.num_cols * columns, dtype=workload.element_type)
            self._output = cupy.zeros(self._stored.num_rows * columns, dtype=workload.element_type)
            kernels.stream.synchronize()
            start = time.perf_counter()
            self._product = Product(
                library,
                workload.operation,
                self._stored.descriptor,
                self._dense_descriptor(library, self._dense, self._stored.num_cols),
                self._dense_descriptor(library, self._output, self._stored.num_rows),
                routine.algorithm,
                workload.element_type,
            )
            kernels.stream.synchronize()
        self.preparation_ms = self._stored.conversion_ms + _since_ms(start)
        """Conversion on the host, workspace and preprocessing."""

    def _dense_descriptor(self, library: CuSparse, array: "cupy.ndarray", num_rows: int) -> Descriptor:
        address, element_type = int(array.data.ptr), self._workload.element_type
        if self._workload.operation == "spmv":
            return cusparse.dense_vector(library, num_rows, address, element_type)
        return cusparse.dense_matrix(library, num_rows, self._workload.num_dense_cols, address, element_type)

    def fill(self, draw: Draw) -> None:
        """Puts a draw's values and dense operand in place and NaN into the output, on the stream."""
        stored = self._stored
        with cuda_errors():
            if stored.value_sources is None:
                stored.values.data.copy_from_device_async(draw.values.data, draw.values.nbytes, self._kernels.stream)
            else:
                self._kernels.pack(
                    int(stored.value_sources.data.ptr),
                    int(draw.values.data.ptr),
                    int(stored.values.data.ptr),
                    int(stored.values.size),
                    self._workload.element_type,
                )
            self._dense.data.copy_from_device_async(draw.dense.data, draw.dense.nbytes, self._kernels.stream)
            self._output.data.memset_async(0xFF, self._output.nbytes, self._kernels.stream)

    def enqueue(self, stream: int) -> None:
        self._product.enqueue(stream)

    def check(self, draw: Draw) -> str:
        """What is wrong with the output for a draw that was filled in; empty when nothing is. Waits for the stream."""
        with cuda_errors():
            self._kernels.stream.synchronize()
            length = self._num_rows * self._workload.num_dense_cols
            output = self._output[:length].reshape(draw.reference.shape).copy()
        match judge(Ran(output=output, guards_intact=True, inputs_intact=True), draw):
            case Mismatch() as mismatch:
                return mismatch.message
            case _:
                return ""


class LibraryRoutines:
    """The library's routines on one workload."""

    def __init__(
        self, library: CuSparse, pattern: Pattern, workload: Workload, kernels: DeviceKernels, instruments: Instruments
    ) -> None:
        self._library = library
        self._pattern = pattern
        self._workload = workload
        self._kernels = kernels
        self._instruments = instruments
        self._storage = Storage(library, pattern, workload)

    def baselines(self, first: Draw, second: Draw) -> Baselines:
        """Times every routine that applies, checked on two draws in device memory.

        Raises Unavailable when not even the default routine works.
        """
        timed: list[BaselineTiming] = []
        for routine in routines_for(self._workload.operation, useful_block_sizes(self._pattern)):
            timing = self._timed_or_left_out(routine, first, second)
            if timing is not None:
                timed.append(timing)
        if all(timing.routine != DEFAULT_ROUTINE for timing in timed):
            raise Unavailable(f"{DEFAULT_ROUTINE} does not work on this device: there is no baseline")
        return Baselines(default=DEFAULT_ROUTINE, routines=tuple(timed))

    def sequence(self, name: str, draw: Draw, budget: TimingBudget) -> TimedSequence:
        """A routine by name, ready to be timed. Raises CuSparseRefused, LaunchRefused, DeviceLost."""
        names = {r.name: r for r in routines_for(self._workload.operation, BLOCK_SIZES)}
        return self._sequence(self._prepared(names[name]), draw, budget)

    def _prepared(self, routine: Routine) -> PreparedRoutine:
        return PreparedRoutine(
            routine, self._storage, self._library, self._workload, self._pattern.num_rows, self._kernels
        )

    def _sequence(self, prepared: PreparedRoutine, draw: Draw, budget: TimingBudget) -> TimedSequence:
        prepared.fill(draw)
        with cuda_errors():
            prepared.enqueue(self._kernels.stream.ptr)
            self._kernels.stream.synchronize()
        return TimedSequence(prepared.enqueue, self._instruments, budget)

    def _timed_or_left_out(self, routine: Routine, first: Draw, second: Draw) -> BaselineTiming | None:
        try:
            return self._timed(routine, first, second)
        except (CuSparseRefused, InvalidProgram, LaunchRefused, WrongBaseline) as reason:
            _log.info("baseline %s left out: %s", routine.name, reason)
            return None

    def _timed(self, routine: Routine, first: Draw, second: Draw) -> BaselineTiming:
        prepared = self._prepared(routine)
        sequence = self._sequence(prepared, first, FULL)
        timing = sequence.measure(FULL, max_attempts=3)
        for draw in (first, second):
            # The graph that was timed, on fresh values and a fresh x in the same buffers.
            prepared.fill(draw)
            sequence.warm.graph.launch()
            problem = prepared.check(draw)
            if problem:
                raise WrongBaseline(problem)
        return BaselineTiming(routine=routine.name, timing=timing, preparation_ms=prepared.preparation_ms)


class WrongBaseline(Exception):
    """A routine of the library gave a result outside the bound."""
