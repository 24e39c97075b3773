"""Every cuSPARSE routine that applies to a workload: prepared, checked and timed by the code that times candidates.

Each storage is converted once, on all cores before anything is timed, and uploaded once for its routines. Workspace and
preprocessing lie outside the timing; each routine gets a matrix descriptor of its own, because cuSPARSE keeps what
preprocessing found in the descriptor. A routine that the library refuses, that cannot be captured into a graph or whose
result is wrong is left out with a logged reason. Arithmetic is that of the element type, never TF32.

Each routine is timed briefly, those near the front and the default one at length.
"""

import logging
import math
import time
from collections.abc import Sequence
from typing import assert_never

import cupy
import numpy as np
from cupy.cuda import memory

from services.evaluator.checking.correctness import judge
from services.evaluator.cuda.launch import LaunchRefused, cuda_errors
from services.evaluator.cuda.library.blocks import useful_block_sizes, useful_ell_block_sizes
from services.evaluator.cuda.library.matrices import (
    SELL_SLICE,
    HostMatrices,
    HostMatrix,
    Unsuited,
    is_symmetric,
)
from services.evaluator.cuda.memory import array_anywhere
from services.evaluator.cuda.own_kernels import DeviceKernels
from services.evaluator.cuda.timed_sequence import Instruments, RestoredSequence, TimedSequence
from services.evaluator.device import Draw, Ran
from services.evaluator.measuring.interval import FULL, QUICK, TimingBudget
from sparsesmith.cuda import cusparse
from sparsesmith.cuda.cusparse import (
    Call,
    CuSparse,
    CuSparseRefused,
    DescribedProduct,
    Descriptor,
    Form,
    PlannedProduct,
    Product,
)
from sparsesmith.cuda.routines import (
    BLOCK_SIZES,
    ELL_BLOCK_SIZES,
    TRANSPOSED,
    Kind,
    Routine,
    Storage,
    default_routine,
    routines_for,
)
from sparsesmith.elements import WIDE_TYPES
from sparsesmith.errors import Unavailable
from sparsesmith.matrix.pattern import Int32Array, Pattern
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.operation import operands_with_role
from sparsesmith.operations.scaled import ALPHA, BETA
from sparsesmith_proto.kernel import Baselines, BaselineTiming, MeasuredTiming, Mismatch, Workload
from sparsesmith_proto.message import ElementType

CONTENDER_RATIO = 1.05
"""Within this factor of the best so far a routine is timed at length; the others keep their brief time."""

_TURNS: tuple[Kind, ...] = ("bsr", "blocked_ell", "sell", "lower", "csr", "coo")
"""What is fast where it applies goes first, so that fewer of the others are timed at length."""

_log = logging.getLogger(__name__)


class DeviceMatrix:
    """A in one of the library's formats on the device, shared by its routines; values still to be filled in."""

    def __init__(self, host: HostMatrix, pattern: Pattern, element_type: ElementType) -> None:
        """Raises cupy.cuda.memory.OutOfMemoryError, LaunchRefused, DeviceLost."""
        self.host = host
        self._pattern = pattern
        self._type = element_type
        with cuda_errors():
            self._offsets, self._columns = _uploaded(host.offsets), _uploaded(host.columns)
            self._sources = None if host.value_sources is None else cupy.asarray(host.value_sources)
            self._values = array_anywhere(host.num_slots, element_type)

    def described(self, library: CuSparse) -> Descriptor:
        """A new descriptor of the arrays, which must outlive it. Raises CuSparseRefused."""
        host, storage = self.host, self.host.storage
        arrays = (int(self._offsets.data.ptr), int(self._columns.data.ptr), int(self._values.data.ptr))
        shape = cusparse.MatrixShape(host.num_rows, host.num_cols, self._pattern.nnz)
        match storage.kind:
            case "csr":
                return cusparse.csr(library, shape, *arrays, self._type)
            case "coo":
                return cusparse.coo(library, shape, *arrays, self._type)
            case "sell":
                return cusparse.sliced_ell(library, shape, host.num_slots, SELL_SLICE, *arrays, self._type)
            case "bsr":
                size = storage.block_size
                rows, cols, blocks = host.num_rows // size, host.num_cols // size, host.num_slots // size**2
                return cusparse.bsr(library, rows, cols, blocks, size, *arrays, self._type)
            case "blocked_ell":
                row_slots = host.num_slots // host.num_rows
                return cusparse.blocked_ell(library, shape, storage.block_size, row_slots, *arrays[1:], self._type)
            case "lower":
                lower = cusparse.MatrixShape(host.num_rows, host.num_cols, host.num_slots)
                return cusparse.lower_csr(library, lower, *arrays, self._type)
            case _:
                assert_never(storage.kind)

    def fill(self, values: "cupy.ndarray", kernels: DeviceKernels) -> None:
        """Puts values in CSR order in place, on the stream."""
        if self._sources is None:
            self._values.data.copy_from_device_async(values.data, values.nbytes, kernels.stream)
            return
        kernels.pack(
            int(self._sources.data.ptr),
            int(values.data.ptr),
            int(self._values.data.ptr),
            int(self._values.size),
            self._type,
        )


class PreparedRoutine:
    """A routine ready to be launched, with a descriptor and dense operands of its own."""

    def __init__(
        self,
        routine: Routine,
        matrix: DeviceMatrix,
        library: CuSparse,
        workload: Workload,
        num_results: int,
        kernels: DeviceKernels,
    ) -> None:
        """`num_results`: rows of the result, padding not counted. Raises CuSparseRefused, LaunchRefused, DeviceLost."""
        self.routine = routine
        self._matrix = matrix
        self._workload = workload
        self._operation = TRANSPOSED.get(workload.operation, workload.operation)
        is_transposed = workload.operation in TRANSPOSED and not routine.storage.is_transposed
        alpha, beta = (ALPHA, BETA) if workload.alpha_beta else (1.0, 0.0)
        self._form = Form(workload.element_type, is_transposed, alpha, beta)
        self._num_results = num_results
        self._kernels = kernels
        with cuda_errors():
            columns, (num_given, num_results) = workload.num_dense_cols, self._extents
            self._dense = array_anywhere(num_given * columns, workload.element_type)
            self._output = array_anywhere(num_results * columns, workload.element_type)
            self._before = array_anywhere(self._output.size, workload.element_type) if workload.alpha_beta else None
            self._dense.fill(0)
            self._output.fill(0)
            kernels.stream.synchronize()
            start = time.perf_counter()
            self._call = self._prepared_call(library)
            kernels.stream.synchronize()
        self.preparation_ms = matrix.host.conversion_ms + (time.perf_counter() - start) * 1e3
        """Conversion on the host, workspace, preprocessing or plan."""

    @property
    def given(self) -> "cupy.ndarray":
        """The dense operand's memory, which `enqueue` reads; padding included."""
        return self._dense

    @property
    def found(self) -> "cupy.ndarray":
        """The result's memory, padding included."""
        return self._output

    @property
    def _extents(self) -> tuple[int, int]:
        """Rows of the dense operand and of the result, as the library sees them."""
        host = self._matrix.host
        return (host.num_rows, host.num_cols) if self._form.is_transposed else (host.num_cols, host.num_rows)

    def _prepared_call(self, library: CuSparse) -> Call:
        routine = self.routine
        num_given, num_results = self._extents
        operands = (
            self._matrix.described(library),
            self._dense_descriptor(library, self._dense, num_given),
            self._dense_descriptor(library, self._output, num_results),
        )
        algorithm = routine.algorithm
        match routine.function:
            case "product":
                return Product(library, self._operation, *operands, algorithm, self._form)
            case "plan":
                return PlannedProduct(library, *operands, algorithm, self._form)
            case "descriptor":
                return DescribedProduct(library, *operands, algorithm, self._form)
            case _:
                assert_never(routine.function)

    def _dense_descriptor(self, library: CuSparse, array: "cupy.ndarray", num_rows: int) -> Descriptor:
        address, element_type = int(array.data.ptr), self._workload.element_type
        if self._operation == "spmv":
            return cusparse.dense_vector(library, num_rows, address, element_type)
        return cusparse.dense_matrix(library, num_rows, self._workload.num_dense_cols, address, element_type)

    def fill(self, draw: Draw) -> None:
        """Puts a draw's values and dense operand in place, and into the output NaN or what is added to, on the stream.

        The values are shared by all routines on the matrix: to be called before a routine runs after another one.
        """
        with cuda_errors():
            self._matrix.fill(draw.values, self._kernels)
            dense = draw.inputs[self._input]
            self._dense.data.copy_from_device_async(dense.data, dense.nbytes, self._kernels.stream)
            self._output.data.memset_async(0xFF, self._output.nbytes, self._kernels.stream)
            if self._before is not None:
                before = draw.inputs[draw.output]
                self._before.data.copy_from_device_async(before.data, before.nbytes, self._kernels.stream)
        self.restore()

    def restore(self, _: int | None = None) -> None:
        """Brings back what is added to, where something is, on the stream."""
        if self._before is not None:
            with cuda_errors():
                self._output.data.copy_from_device_async(self._before.data, self._before.nbytes, self._kernels.stream)

    @property
    def _input(self) -> str:
        """The operand that A is multiplied with."""
        (operand,) = operands_with_role(operation_named(self._operation), "input")
        return operand.name

    def renew(self) -> None:
        """After other values were filled in than the routine was prepared or captured with: a captured graph is not of
        the new preparation. Raises CuSparseRefused."""
        with cuda_errors():
            self._kernels.stream.synchronize()
            self._call.renew()

    @property
    def holds_values(self) -> bool:
        """Whether what was prepared may hold the values of A as they were."""
        return self.routine.function == "plan"

    def enqueue(self, stream: int) -> None:
        self._call.enqueue(stream)

    def check(self, draw: Draw) -> str:
        """What is wrong with the output for a draw that was filled in; empty when nothing is. Waits for the stream."""
        with cuda_errors():
            self._kernels.stream.synchronize()
            length = self._num_results * self._workload.num_dense_cols
            output = self._output[:length].reshape(draw.reference.shape).copy()
        match judge(Ran({draw.output: output}, guards_intact=True, inputs_intact=True), draw):
            case Mismatch() as mismatch:
                return mismatch.message
            case _:
                return ""


class LibraryRoutines:
    """The library's routines on one workload."""

    def __init__(self, library: CuSparse, problem: Problem, kernels: DeviceKernels, instruments: Instruments) -> None:
        self._library = library
        self._problem = problem
        self._pattern = pattern = problem.pattern
        self._workload = workload = problem.workload
        self._kernels = kernels
        self._instruments = instruments
        self._matrices = HostMatrices(pattern)
        self._default = default_routine(workload.operation, deterministic=workload.deterministic)
        self._in_finals: PreparedRoutine | None = None
        """Kept from one final to the next: a captured graph does not keep the memory that it works on."""

    def baselines(self, first: Draw, second: Draw) -> Baselines:
        """Times every routine that applies, checked on two draws in device memory.

        Raises Unavailable when not even the default routine works.
        """
        routines = routines_for(
            self._workload.operation,
            useful_block_sizes(self._pattern),  # The same of A^T.
            useful_ell_block_sizes(self._pattern) if self._workload.operation == "spmm" else (),
            is_symmetric=self._is_symmetric(),
            deterministic=self._workload.deterministic,
            has=self._library.has,
        )
        storages = sorted(
            dict.fromkeys(routine.storage for routine in routines), key=lambda each: _TURNS.index(each.kind)
        )
        self._matrices.convert_ahead(storages)
        timed: dict[Routine, BaselineTiming] = {}
        for storage in storages:
            on_storage = [routine for routine in routines if routine.storage == storage]
            self._time_on(storage, on_storage, first, second, timed)
        default = self._working_default([routine.name for routine in routines if routine in timed])
        found = Baselines(default=default, routines=tuple(timed[each] for each in routines if each in timed))
        # The finals prepare the best routine again.
        best = found.best_routine()
        self._matrices.keep_only(next(routine for routine in timed if timed[routine] is best).storage)
        return found

    def _working_default(self, working: Sequence[str]) -> str:
        """The default routine; of 16-bit numbers the first that works, as some keep sums in 16 bits and are left out.

        Raises Unavailable.
        """
        if self._default in working:
            return self._default
        if not working or self._workload.element_type in WIDE_TYPES:
            raise Unavailable(f"{self._default} does not work on this device: there is no baseline")
        return working[0]

    def _is_symmetric(self) -> bool:
        """Known of fixed values alone: a pattern does not say it, and other values are drawn."""
        values = self._problem.values
        return self._workload.operation == "spmv" and is_symmetric(self._pattern, values.array if values else None)

    def sequence(self, name: str, draw: Draw, budget: TimingBudget) -> TimedSequence:
        """A routine by name, ready to be timed until another one is asked for.

        Raises CuSparseRefused, Unsuited, LaunchRefused, DeviceLost.
        """
        if self._in_finals is None or self._in_finals.routine.name != name:
            self._in_finals = None
            listed = routines_for(
                self._workload.operation, BLOCK_SIZES, ELL_BLOCK_SIZES, is_symmetric=True, has=self._library.has
            )
            routine = {routine.name: routine for routine in listed}[name]
            self._in_finals = self._prepared(routine, self._on_device(routine.storage))
        return self._sequence(self._in_finals, draw, budget)

    def move(self) -> None:
        """The next sequence lies at other addresses than the one before."""
        self._in_finals = None

    def _on_device(self, storage: Storage) -> DeviceMatrix:
        return DeviceMatrix(self._matrices.get(storage), self._pattern, self._workload.element_type)

    def _prepared(self, routine: Routine, matrix: DeviceMatrix) -> PreparedRoutine:
        pattern = self._pattern
        num_results = pattern.num_cols if self._workload.operation in TRANSPOSED else pattern.num_rows
        return PreparedRoutine(routine, matrix, self._library, self._workload, num_results, self._kernels)

    def _sequence(self, prepared: PreparedRoutine, draw: Draw, budget: TimingBudget) -> TimedSequence:
        prepared.fill(draw)
        prepared.renew()
        with cuda_errors():
            prepared.enqueue(self._kernels.stream.ptr)
            self._kernels.stream.synchronize()
        if not self._workload.alpha_beta:
            return TimedSequence(prepared.enqueue, self._instruments, budget)
        return RestoredSequence(prepared.enqueue, prepared.restore, self._instruments, budget)

    def _time_on(
        self,
        storage: Storage,
        routines: Sequence[Routine],
        first: Draw,
        second: Draw,
        timed: dict[Routine, BaselineTiming],
    ) -> None:
        """Adds the times of the routines on one storage, whose device memory is free again afterwards."""
        try:
            matrix = self._on_device(storage)
        except (Unsuited, LaunchRefused, memory.OutOfMemoryError) as reason:
            _log.info("baselines on %s left out: %s", storage, reason)
            return
        for routine in routines:
            rivals = (timing for timing in timed.values() if timing.needs_copy == storage.is_transposed)
            best_us = min((timing.timing.median_us for timing in rivals), default=math.inf)
            try:
                timed[routine] = self._timed(routine, matrix, first, second, CONTENDER_RATIO * best_us)
            except (CuSparseRefused, LaunchRefused, WrongBaseline, memory.OutOfMemoryError) as reason:
                _log.info("baseline %s left out: %s", routine.name, reason)

    def _timed(
        self, routine: Routine, matrix: DeviceMatrix, first: Draw, second: Draw, contender_us: float
    ) -> BaselineTiming:
        prepared = self._prepared(routine, matrix)
        sequence, timing = self._measured(prepared, first, QUICK)
        if routine.name == self._default or timing.median_us <= contender_us:
            sequence, timing = self._measured(prepared, first, FULL)
        for draw in (first, second):
            # The graph that was timed, on fresh values and a fresh x in the same buffers; of a plan that holds values
            # a new one, and its product.
            prepared.fill(draw)
            if prepared.holds_values and draw is not first:
                prepared.renew()
                prepared.enqueue(self._kernels.stream.ptr)
            else:
                sequence.warm.graph.launch()
            problem = prepared.check(draw)
            if problem:
                raise WrongBaseline(problem)
        return BaselineTiming(
            routine=routine.name,
            timing=timing,
            preparation_ms=prepared.preparation_ms,
            needs_copy=routine.storage.is_transposed,
        )

    def _measured(
        self, prepared: PreparedRoutine, draw: Draw, budget: TimingBudget
    ) -> tuple[TimedSequence, MeasuredTiming]:
        sequence = self._sequence(prepared, draw, budget)
        return sequence, sequence.measure(budget)


def _uploaded(array: Int32Array) -> "cupy.ndarray":
    """A copy on the device. Raises cupy.cuda.memory.OutOfMemoryError."""
    copy = array_anywhere(array.size, array.dtype.name)
    copy.set(np.ascontiguousarray(array))
    return copy


class WrongBaseline(Exception):
    """A routine of the library gave a result outside the bound."""
