"""How a time is measured, without saying on what: batches, the interval of the median, when to stop, what to refuse.

A batch is one measurement: a replayed graph of `repeats` launch sequences between two events, divided by `repeats`. The
statistics are distribution-free, because batch times are skewed (a disturbance only ever makes a batch longer).

What this does not protect against: a systematic error that all batches share (a wrong clock, a kernel that does
nothing). Those are caught by checking the outputs of the timed runs and by the byte floor.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, comb
from statistics import median

CONFIDENCE = 0.95

Batch = Callable[[], float]
"""Runs one batch and returns microseconds per launch sequence."""


@dataclass(frozen=True)
class TimingBudget:
    """When to stop measuring."""

    target_batch_us: float = 1000.0
    """A batch repeats the sequence until it lasts about this long: events resolve about half a microsecond."""
    max_repeats: int = 512
    """Launch sequences in one graph, at most."""
    warm_up_batches: int = 0
    """Rounds before the first that counts, beside the one batch that every sequence runs before it is measured."""
    min_batches: int = 8
    """At least 6: fewer give no 95 % interval of the median."""
    max_batches: int = 40
    max_us: float = 200_000.0
    """Device time for the batches of one program; min_batches are taken regardless, up to the grace below."""
    relative_interval: float = 0.01
    """Stop when the interval of the median is narrower than this share of the median."""
    cold_runs: int = 15
    """Runs behind a flushed L2."""
    max_attempts: int = 3
    """How often a measurement is taken at most when the GPU's clocks disturb it."""


FULL = TimingBudget()
"""For numbers that are reported: about 20 to 200 ms of device time a program."""

QUICK = TimingBudget(
    target_batch_us=250.0,
    max_repeats=256,
    min_batches=6,
    max_batches=24,
    max_us=4_000.0,
    relative_interval=0.03,
    cold_runs=5,
    max_attempts=1,
)
"""For racing many candidates: about 2 to 5 ms of device time a program."""


@dataclass(frozen=True)
class MedianInterval:
    """The median of batch times and its 95 % confidence interval from order statistics."""

    median_us: float
    low_us: float
    high_us: float
    num_batches: int
    reaches_confidence: bool
    """False for fewer than six batches: low and high are then only the extremes."""

    @property
    def relative_width(self) -> float:
        """Width of the interval as a share of the median."""
        return (self.high_us - self.low_us) / self.median_us if self.median_us > 0 else float("inf")

    def is_narrower_than(self, relative_interval: float) -> bool:
        return self.reaches_confidence and self.relative_width <= relative_interval


@lru_cache(maxsize=1024)
def interval_rank(num_samples: int, confidence: float = CONFIDENCE) -> int:
    """The largest k for which [x_(k), x_(n+1-k)] holds the median with at least this probability; 0 where none does.

    P(x_(k) <= median <= x_(n+1-k)) = 1 - 2 P(Binomial(n, 1/2) <= k - 1), whatever the distribution (David and Nagaraja,
    Order Statistics, section 7.1).
    """
    tail = 0
    rank = 0
    for k in range(1, (num_samples + 1) // 2 + 1):
        tail += comb(num_samples, k - 1)
        if 1 - 2 * tail / 2**num_samples < confidence:
            break
        rank = k
    return rank


def median_interval(batch_us: Sequence[float]) -> MedianInterval:
    """Median and interval of at least one batch time."""
    ordered = sorted(batch_us)
    rank = interval_rank(len(ordered))
    position = max(rank, 1) - 1
    return MedianInterval(
        median_us=median(ordered),
        low_us=ordered[position],
        high_us=ordered[len(ordered) - 1 - position],
        num_batches=len(ordered),
        reaches_confidence=rank > 0,
    )


def repeats_for(sequence_us: float, budget: TimingBudget) -> int:
    """How many launch sequences a batch holds, from a first estimate of one."""
    return max(1, min(budget.max_repeats, ceil(budget.target_batch_us / max(sequence_us, 1e-3))))


def settled_repeats(single: Batch, several: Callable[[], Batch], budget: TimingBudget) -> int:
    """How many launch sequences a batch holds, by first batches: of one sequence, and where it is short of several.

    The shortest of each counts. A disturbance only makes a batch longer, and with too few repeats every later batch
    would hold the cost of its start: ten times a kernel of 1 us.
    """
    first_us = single()
    if first_us >= budget.target_batch_us:
        first_us = min(first_us, single())
    if first_us < budget.target_batch_us:
        batch = several()
        first_us = min(batch() for _ in range(FIRST_BATCHES))
    return repeats_for(first_us, budget)


FIRST_BATCHES = 3
"""Of several sequences, before their repeats are settled."""


def measure(batch: Batch, repeats: int, budget: TimingBudget) -> MedianInterval:
    """Takes batches until the interval is narrow enough or the budget is spent."""
    return measure_interleaved([batch], [repeats], budget)[0]


def measure_interleaved(
    batches: Sequence[Batch], repeats: Sequence[int], budget: TimingBudget
) -> tuple[MedianInterval, ...]:
    """Takes one batch of each in turn, the order rotating, so that drift of the clocks falls on all alike.

    Stops when every interval is narrow enough or each program's budget is spent. `repeats[i]` is the number of launch
    sequences in a batch of program i: it turns a time per sequence into device time spent.
    """
    if len(batches) != len(repeats):
        raise ValueError(f"{len(batches)} batches with {len(repeats)} repeats")
    for _ in range(budget.warm_up_batches):
        for batch in batches:
            batch()
    samples: list[list[float]] = [[] for _ in batches]
    spent_us = 0.0
    for round_ in range(budget.max_batches):
        for step in range(len(batches)):
            index = (step + round_) % len(batches)
            samples[index].append(batches[index]())
            spent_us += samples[index][-1] * repeats[index]
        if _is_enough(samples, spent_us / max(len(batches), 1), budget):
            break
    return tuple(median_interval(series) for series in samples)


def _is_enough(samples: Sequence[Sequence[float]], spent_us: float, budget: TimingBudget) -> bool:
    taken = len(samples[0])
    if taken < budget.min_batches:
        # A candidate of many milliseconds must not take eight batches of a quick budget's time each.
        return spent_us > GRACE * budget.max_us
    if spent_us >= budget.max_us:
        return True
    return all(median_interval(series).is_narrower_than(budget.relative_interval) for series in samples)


GRACE = 4
"""A budget may be overrun this many times before the minimum number of batches is given up."""


@dataclass(frozen=True)
class ByteFloor:
    """The least time a program can take, from bytes it must read or write and what the chip can move.

    The bytes are the values of A, the entries of x that some column uses, and y: a program may know the pattern by
    heart and so need not read an index. `dram_gbs` and `l2_gbs` are upper bounds, not typical rates.
    """

    required_bytes: int
    l2_bytes: int
    dram_gbs: float
    l2_gbs: float

    @property
    def warm_us(self) -> float:
        """Everything through the L2's ports; what the L2 cannot hold also from memory."""
        through_l2 = self.required_bytes / self.l2_gbs / 1e3
        from_memory = max(0, self.required_bytes - self.l2_bytes) / self.dram_gbs / 1e3
        return max(through_l2, from_memory)

    @property
    def cold_us(self) -> float:
        """All from memory."""
        return self.required_bytes / self.dram_gbs / 1e3


READ_MARGIN = 1.2
"""A pure read may beat the measured copy bandwidth (no turn-around between reads and writes) by less than this."""

L2_BYTES_PER_SM_CLOCK = 64
"""Width of the port between an SM and the L2 on compute capability 7.0 to 9.0."""


def l2_bandwidth_bound_gbs(num_sms: int, max_sm_clock_mhz: int) -> float:
    """What all SMs together can take from the L2, 1e9 bytes a second."""
    return num_sms * L2_BYTES_PER_SM_CLOCK * max_sm_clock_mhz / 1e3


FRESH_RATIO = 1.15
FRESH_MARGIN_US = 0.5
"""Two single runs on the same placement differ by less than this, if they do the same work."""


def is_suspicious(fresh_us: float, stale_us: float, empty_us: float) -> bool:
    """Whether a single run on a new x, with output and scratch lost, takes longer than one with all as it was left.

    A program that remembers its input and skips work when nothing seems to have changed is fast only when repeated.
    Both times are the least of single graphs between events (a busy host makes some longer); the ratio is of what
    an empty one does not take.
    """
    return fresh_us - stale_us > (FRESH_RATIO - 1) * max(stale_us - empty_us, 0.0) + FRESH_MARGIN_US


def runs_within(runs: int, sequence_us: float, budget: TimingBudget) -> int:
    """How many single runs of a sequence this long the budget affords: from one to the number asked for."""
    return max(1, min(runs, int(budget.max_us / max(sequence_us, 1e-3))))
