"""One launch sequence under the stopwatch: the same code times candidates and library routines."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.evaluator.cuda.clocks import Clocks
from services.evaluator.cuda.launch import CapturedGraph, Enqueue
from services.evaluator.cuda.stopwatch import Stopwatch, WarmGraph
from services.evaluator.measuring.disturbance import Attempted, measure_undisturbed
from services.evaluator.measuring.interval import MedianInterval, TimingBudget, measure_interleaved, runs_within
from sparsesmith_proto.kernel import MeasuredTiming


@dataclass(frozen=True, eq=False)
class Instruments:
    """Stopwatch and clocks of one GPU."""

    stopwatch: Stopwatch
    clocks: Clocks


class TimedSequence:
    """A sequence captured once alone (cold runs) and once repeated (warm batches). Buffers must hold a draw by then."""

    single: CapturedGraph
    """One product: where something is changed in place, behind a copy that brings it back to what it was."""
    warm: WarmGraph
    """Many of them."""

    def __init__(self, enqueue: Enqueue, instruments: Instruments, budget: TimingBudget) -> None:
        """Runs the sequence a few times to choose the repeats. Raises LaunchRefused, DeviceLost."""
        self._instruments = instruments
        self.product = enqueue
        """Puts one product on a stream, as `single` does."""
        stopwatch = instruments.stopwatch
        stopwatch.wake()
        self.single = stopwatch.captured(enqueue, 1)
        self.warm = stopwatch.repeated(enqueue, self.single, budget)

    def measure(self, budget: TimingBudget) -> MeasuredTiming:
        """Warm and cold. A disturbed measurement is repeated as often as the budget allows; the last one counts."""
        return measure_in_turns([self], self._instruments, budget)[0]

    def batch_us(self) -> float:
        """One warm batch, microseconds per sequence."""
        return self.warm.batch_us()

    def batch_in_turns_us(self) -> float:
        """As `batch_us`, behind whatever another program left in the L2: that is forgotten, this one's data loaded.

        A whole batch comes first: writing back what the flush changed goes on for some 50 us (of an H200), which would
        add a tenth to the time of a kernel of 1 us.
        """
        self._instruments.stopwatch.flush()
        self.warm.graph.launch()
        return self.batch_us()

    def cold_us(self, interval: MedianInterval, budget: TimingBudget) -> float:
        """Median of single runs behind a flushed L2, as many as the budget affords."""
        runs = runs_within(budget.cold_runs, interval.median_us, budget)
        return self._cold_us(runs)

    def _cold_us(self, runs: int) -> float:
        return self._instruments.stopwatch.cold_us(self.single, runs)


class RestoredSequence(TimedSequence):
    """A sequence that changes its input in place: a copy brings the input back before each run.

    Warm batches are of copy and sequence, and each is followed by one of as many copies alone, whose time is taken off
    it. Cold runs are of the sequence alone, behind a copy and a flushed L2.

    What this does not protect against: a copy behind which the sequence finds its input in the L2, as it would behind
    a producer on the device; the warm time is that.
    """

    def __init__(self, enqueue: Enqueue, restore: Enqueue, instruments: Instruments, budget: TimingBudget) -> None:
        """Raises LaunchRefused, DeviceLost."""

        def restored(stream: int) -> None:
            restore(stream)
            enqueue(stream)

        super().__init__(restored, instruments, budget)
        stopwatch = instruments.stopwatch
        self._restore = restore
        self._alone = stopwatch.captured(enqueue, 1)
        self._copies = stopwatch.graph_of(restore, self.warm.graph.repeats)

    def batch_us(self) -> float:
        """Microseconds of one sequence without its copy; 0 where the two cannot be told apart."""
        return max(0.0, self.warm.batch_us() - self._copies.batch_us())

    def _cold_us(self, runs: int) -> float:
        return self._instruments.stopwatch.cold_us(self._alone, runs, self._restore)


def measure_in_turns(
    sequences: Sequence[TimedSequence], instruments: Instruments, budget: TimingBudget
) -> tuple[MeasuredTiming, ...]:
    """Times sequences interleaved, so that drift of the clocks falls on all alike; in the order given."""
    instruments.stopwatch.wake()
    instruments.stopwatch.flush()
    batches = [sequence.batch_us if len(sequences) == 1 else sequence.batch_in_turns_us for sequence in sequences]
    repeats = [sequence.warm.graph.repeats for sequence in sequences]

    def take() -> tuple[MedianInterval, ...]:
        for sequence in sequences:
            sequence.warm.batch_us()
        return measure_interleaved(batches, repeats, budget)

    attempted = measure_undisturbed(take, instruments.clocks.read, budget.max_attempts)
    return tuple(
        measured_timing(interval, sequence.cold_us(interval, budget), budget, attempted)
        for interval, sequence in zip(attempted.measurement, sequences, strict=True)
    )


def measured_timing(
    interval: MedianInterval, cold_us: float, budget: TimingBudget, attempted: Attempted[tuple[MedianInterval, ...]]
) -> MeasuredTiming:
    """The message; stable means the interval closed under the budget's target and the GPU was left alone."""
    return MeasuredTiming(
        median_us=interval.median_us,
        low_us=interval.low_us,
        high_us=interval.high_us,
        cold_us=cold_us,
        num_batches=interval.num_batches,
        stable=interval.is_narrower_than(budget.relative_interval) and not attempted.disturbances,
        sm_clock_mhz=attempted.clock.sm_clock_mhz,
        num_attempts=attempted.num_attempts,
        disturbances=attempted.disturbances,
    )
