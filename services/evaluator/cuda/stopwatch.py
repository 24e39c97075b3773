"""Measured device time: CUDA events around replayed graphs, warm and cold.

Nothing is subtracted from a reported time, but for copies that bring back what is changed in place
(`timed_sequence.RestoredSequence`). Before each measurement a spinning kernel keeps the device busy until the
host has queued events and graph, so host time never falls between two events.

- **warm**: one graph of many launch sequences, back to back, divided by their number; the caches hold what the
  previous sequence left, as in an iterative solver.
- **cold**: one sequence behind a kernel that rewrites twice the L2's size. The time of a single graph between two
  events holds a fixed cost of one to three microseconds, the same for candidates and baselines (`empty_single_us`).
- **fresh**: as cold, but behind a new x instead of a flush.
"""

import time
from collections.abc import Callable
from functools import cached_property, partial
from statistics import median

import cupy
from cupy.cuda import runtime

from services.evaluator.cuda.launch import CapturedGraph, Enqueue, cuda_errors
from services.evaluator.cuda.own_kernels import DeviceKernels
from services.evaluator.measuring.interval import Batch, TimingBudget, settled_repeats

FLUSH_FACTOR = 2
"""The flushing kernel rewrites this many times the L2's size."""
_PROBE_REPEATS = 4
_IDLE_S = 0.2
_WAKE_S = 0.03
_FLUSHES_A_WAKE = 50
_HOST_MARGIN_US = 15.0
SINGLE_LEAD_US = 60.0
"""Longer than the host usually takes to queue one single run."""
_MAX_PENDING = 32
"""Single runs that are queued before the host waits."""


class Stopwatch:
    """Times graphs on one stream."""

    def __init__(self, kernels: DeviceKernels, l2_bytes: int) -> None:
        self._kernels = kernels
        self._stream = kernels.stream
        self._busy_at = 0.0
        with cuda_errors():
            self._events = [int(runtime.eventCreate()) for _ in range(2 * _MAX_PENDING)]
            self._flush_bytes = max(FLUSH_FACTOR * l2_bytes, 1 << 20)
            self._flush_memory = cupy.cuda.alloc(self._flush_bytes)
            runtime.memsetAsync(int(self._flush_memory.ptr), 0, self._flush_bytes, self._stream.ptr)

    @cached_property
    def empty_single_us(self) -> float:
        """What a single graph of an empty kernel takes between two events; measured when it is first asked for."""
        empty = self._kernels.emptiness()
        with cuda_errors():
            empty.enqueue(self._stream.ptr)
        self.wake()
        return median(self.single_us(CapturedGraph(empty.enqueue, 1, self._stream), lambda: None, 15))

    def batch_us(self, graph: CapturedGraph, lead_us: float = 30.0) -> float:
        """One replay: microseconds per launch sequence."""
        start, stop = self._events[:2]
        with cuda_errors():
            self._kernels.delay(lead_us)
            runtime.eventRecord(start, self._stream.ptr)
            graph.launch()
            runtime.eventRecord(stop, self._stream.ptr)
            runtime.eventSynchronize(stop)
            self._busy_at = time.monotonic()
            return float(runtime.eventElapsedTime(start, stop)) * 1000 / graph.repeats

    def single_us(
        self, graph: CapturedGraph, before: Callable[[], None], runs: int, lead_us: float = SINGLE_LEAD_US
    ) -> list[float]:
        """Single replays, each behind a delay of `lead_us` and whatever `before` puts on the stream.

        Where the host takes longer than both to queue a run, its time is in the result.
        """
        times: list[float] = []
        while len(times) < runs:
            times += self._pending(graph, before, min(_MAX_PENDING, runs - len(times)), lead_us)
        return [us / graph.repeats for us in times]

    def in_turns_us(
        self, graph: CapturedGraph, before: tuple[Callable[[], None], ...], runs: int, lead_us: float
    ) -> list[list[float]]:
        """Single replays behind each of several things in turn, the last of them last; times by what was before."""
        calls = iter(before * runs)
        times = self.single_us(graph, lambda: next(calls)(), len(before) * runs, lead_us)
        return [times[position :: len(before)] for position in range(len(before))]

    def _pending(self, graph: CapturedGraph, before: Callable[[], None], runs: int, lead_us: float) -> list[float]:
        with cuda_errors():
            for run in range(runs):
                self._kernels.delay(lead_us)
                before()
                runtime.eventRecord(self._events[2 * run], self._stream.ptr)
                graph.launch()
                runtime.eventRecord(self._events[2 * run + 1], self._stream.ptr)
            self._stream.synchronize()
            return [
                float(runtime.eventElapsedTime(self._events[2 * run], self._events[2 * run + 1])) * 1000
                for run in range(runs)
            ]

    def flush(self) -> None:
        """Empties the L2, on the stream."""
        self._kernels.flush(int(self._flush_memory.ptr), self._flush_bytes)

    def captured(self, enqueue: Enqueue, repeats: int) -> CapturedGraph:
        """A graph of this many sequences. Raises LaunchRefused."""
        return CapturedGraph(enqueue, repeats, self._stream)

    def repeated(self, enqueue: Enqueue, single: CapturedGraph, budget: TimingBudget) -> "WarmGraph":
        """A graph of as many sequences as the budget's batch length takes, by first measurements."""

        def several() -> Batch:
            return partial(self.batch_us, self.captured(enqueue, _PROBE_REPEATS))

        return self.graph_of(enqueue, settled_repeats(partial(self.batch_us, single), several, budget))

    def wake(self) -> None:
        """Keeps the GPU busy for a moment when it was left idle: an idle GPU lowers its clocks."""
        if time.monotonic() - self._busy_at > _IDLE_S:
            deadline = time.monotonic() + _WAKE_S
            while time.monotonic() < deadline:
                for _ in range(_FLUSHES_A_WAKE):
                    self.flush()
                with cuda_errors():
                    self._stream.synchronize()
            self._busy_at = time.monotonic()

    def graph_of(self, enqueue: Enqueue, repeats: int) -> "WarmGraph":
        """A graph of this many sequences, ready to be timed."""
        graph = self.captured(enqueue, repeats)
        return WarmGraph(self, graph, self._launch_us(graph) + _HOST_MARGIN_US)

    def _launch_us(self, graph: CapturedGraph) -> float:
        """Host time of a replay's launch: long graphs take longer."""
        with cuda_errors():
            graph.launch()
            self._stream.synchronize()
            start = time.perf_counter()
            graph.launch()
            elapsed_us = (time.perf_counter() - start) * 1e6
            self._stream.synchronize()
        return min(elapsed_us, 1000.0)

    def cold_us(self, single: CapturedGraph, runs: int, first: Enqueue | None = None) -> float:
        """Median of single runs behind a flushed L2; `first` goes on the stream before each flush."""

        def before() -> None:
            if first is not None:
                first(self._stream.ptr)
            self.flush()

        return median(self.single_us(single, before, runs))


class WarmGraph:
    """A repeated sequence and the lead time that its launch needs."""

    def __init__(self, stopwatch: Stopwatch, graph: CapturedGraph, lead_us: float) -> None:
        self._stopwatch = stopwatch
        self.graph = graph
        self._lead_us = lead_us

    def batch_us(self) -> float:
        """One batch, microseconds per sequence."""
        return self._stopwatch.batch_us(self.graph, self._lead_us)
