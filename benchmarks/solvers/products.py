"""Products as a solver's loop makes them: the vector is written where the product reads it, the result lies where the next
step reads it. By the operator, by cupyx (without a GPU: SciPy) with its CSR, by one of the library's routines.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import scipy.sparse

from benchmarks.solvers.row_files import Row
from sparsesmith.artifacts.launcher import import_cupy
from sparsesmith.errors import Unavailable
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operator import Operator
from sparsesmith_proto.kernel import MeasuredTiming, Workload
from sparsesmith_proto.message import ElementType, Operation


class Product(Protocol):
    """With one matrix, one way."""

    @property
    def given(self) -> Any:
        """Where the vector goes."""
        ...

    def run(self) -> Any:
        """The product; valid until the next."""
        ...


class Arrays:
    """Of a GPU where there is one, else of the host."""

    def __init__(self) -> None:
        try:
            cupy = import_cupy()
            cupy.cuda.runtime.getDeviceCount()
            self.module: Any = cupy
            self.is_on_gpu = True
        except Unavailable:
            self.module, self.is_on_gpu = np, False

    @cached_property
    def routines(self) -> "Routines":
        """Of the library. On a GPU only."""
        return Routines()

    def us_a_step(self, loop: Callable[[int], None], steps: int, turns: int) -> float:
        """The least mean over a few turns, after one that counts for nothing."""
        loop(steps)
        return min(self._us(loop, steps) for _ in range(turns))

    def captured(self, call: Callable[[], Any]) -> Callable[[], None] | None:
        """What launches a graph of one call on the routines' stream; None without a GPU, and where something in it cannot
        be captured."""
        if not self.is_on_gpu:
            return None
        stream = self.routines.stream
        with stream:
            call()
            stream.synchronize()
            stream.begin_capture()
            try:
                call()
            except Exception:  # whatever a library says of it
                with suppress(Exception):
                    stream.end_capture()
                return None
            graph = stream.end_capture()
        return partial(graph.launch, stream)

    def repeated(self, call: Callable[[], Any]) -> Callable[[int], None]:
        """So many calls behind one another: of a captured graph where there is one."""
        launch = self.captured(call) or call

        def loop(steps: int) -> None:
            for _ in range(steps):
                launch()

        return loop

    def in_turns(self, calls: Mapping[str, Callable[[], Any]], turns: int) -> dict[str, Row]:
        """Microseconds of each call, `us` warm and `cold_us`; routines must be of `routines`. Without a GPU: of the host,
        medians of `turns`, warm alone."""
        if self.is_on_gpu:
            measured = self.routines.in_turns(list(calls.values()))
            return {name: _times(each) for name, each in zip(calls, measured, strict=True)}
        times = [[self._us(partial(_enqueued, call), 1) for call in calls.values()] for _ in range(turns)]
        medians = map(statistics.median, zip(*times, strict=True))
        return {name: {"us": us} for name, us in zip(calls, medians, strict=True)}

    def _us(self, loop: Callable[[int], None], steps: int) -> float:
        self.wait()
        started = time.perf_counter()
        loop(steps)
        self.wait()
        return (time.perf_counter() - started) / steps * 1e6

    def wait(self) -> None:
        """For all that was put on the GPU."""
        if self.is_on_gpu:
            self.module.cuda.runtime.deviceSynchronize()


def _times(timing: MeasuredTiming) -> Row:
    return {"us": timing.median_us, "low_us": timing.low_us, "high_us": timing.high_us,
            "cold_us": timing.cold_us, "stable": timing.stable}  # fmt: skip


class OperatorProduct:
    """By a tuned kernel."""

    def __init__(self, operator: Operator, arrays: Arrays) -> None:
        self._operator = operator
        rows, cols = operator.shape
        self.given = arrays.module.zeros(cols, operator.dtype)
        self._found = arrays.module.zeros(rows, operator.dtype)

    def run(self) -> Any:
        return self._operator.matvec(self.given, out=self._found)


class SparseProduct:
    """As users multiply who have nothing else: `A @ x`."""

    def __init__(self, matrix: scipy.sparse.csr_matrix, arrays: Arrays) -> None:
        self._matrix: Any = matrix
        if arrays.is_on_gpu:
            from cupyx.scipy.sparse import csr_matrix

            self._matrix = csr_matrix(matrix)
        self.given = arrays.module.zeros(matrix.shape[1], matrix.dtype)

    def run(self) -> Any:
        return self._matrix @ self.given


class Routines:
    """Those of cuSPARSE, as the evaluator calls them. On a GPU only."""

    def __init__(self) -> None:
        from services.evaluator.cuda.device import CudaDevice

        self._device = CudaDevice()

    @property
    def stream(self) -> Any:
        """That the routines work on."""
        return self._device.stream

    def product(
        self,
        name: str,
        matrix: scipy.sparse.csr_matrix,
        operation: Operation = "spmv",
        element_type: ElementType = "float64",
    ) -> Product:
        """`spmv_t`: with A^T, from A as it is stored or from a copy, as the routine's name says. Raises KeyError for one
        that the library does not have, CuSparseRefused."""
        from services.evaluator.cuda.library.baselines import DeviceMatrix, PreparedRoutine
        from services.evaluator.cuda.library.matrices import HostMatrices
        from sparsesmith.cuda.routines import BLOCK_SIZES, ELL_BLOCK_SIZES, routines_for

        library, kernels = self._device.library, self._device.kernels
        listed = routines_for(operation, BLOCK_SIZES, ELL_BLOCK_SIZES, is_symmetric=True, has=library.has)
        routine = {each.name: each for each in listed}[name]
        pattern = pattern_from_scipy(matrix)
        num_results, num_given = matrix.shape if operation == "spmv" else matrix.shape[::-1]
        workload = Workload(pattern=pattern.digest, operation=operation, element_type=element_type)
        with kernels.stream:  # On which all of it is read, too: it waits for no other.
            on_device = DeviceMatrix(HostMatrices(pattern).get(routine.storage), pattern, element_type)
            values = import_cupy().asarray(matrix.data.astype(element_type))
            kernels.stream.synchronize()
            fill = partial(on_device.fill, values, kernels)
            fill()
            prepared = PreparedRoutine(routine, on_device, library, workload, num_results, kernels)
        return _RoutineProduct(prepared, (num_results, num_given), int(kernels.stream.ptr), fill)

    def in_turns(self, calls: Sequence[Callable[[], Any]]) -> tuple[MeasuredTiming, ...]:
        """Of calls on the device's stream, warm and cold, as the evaluator times programs: captured graphs, taken in
        turns. Raises LaunchRefused where one cannot be captured."""
        from services.evaluator.cuda.timed_sequence import TimedSequence, measure_in_turns
        from services.evaluator.measuring.interval import FULL

        instruments, stream = self._device.instruments, self._device.stream
        with stream:
            for call in calls:
                call()
            stream.synchronize()
            sequences = [TimedSequence(partial(_enqueued, call), instruments, FULL) for call in calls]
            return measure_in_turns(sequences, instruments, FULL)


def _enqueued(call: Callable[[], Any], _: int) -> None:
    """Once, on the stream that is current."""
    call()


class _RoutineProduct:
    def __init__(self, prepared: Any, shape: tuple[int, int], stream: int, fill: Callable[[], None]) -> None:
        self._prepared, self._stream, self._fill = prepared, stream, fill
        self.given = prepared.given[: shape[1]]
        self._found = prepared.found[: shape[0]]

    def run(self) -> Any:
        self._prepared.enqueue(self._stream)
        return self._found

    def renew(self) -> None:
        """Puts the values in place again, and prepares with them."""
        self._fill()
        self._prepared.renew()
