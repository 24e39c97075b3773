"""What an outcome is worth to the trainer: reward schemes as pure functions, selectable by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log2
from typing import assert_never

from sparsesmith_proto.kernel import (
    Baselines,
    CompileFailed,
    Crashed,
    MeasuredTiming,
    Mismatch,
    Outcome,
    Passed,
    Rejected,
    TimedOut,
    Timing,
)

REJECTED = -1.0
COMPILE_FAILED = -0.8
CRASHED = -0.6
TIMED_OUT = -0.5
MISMATCH = -0.4
CORRECT = 0.2
NOISE_MARGIN = 0.02
"""Times within 2 % of the best baseline count as equal to it."""
SLOWEST, FASTEST = -0.5, 1.8
"""Bounds of the log2 speed-up: the slowest correct kernel (-0.3) is still worth more than any wrong one."""

COMPILES = 0.5
TEST_PASSES = 0.5
EFFICIENCY_WEIGHT = 1.0
SHARED_MEMORY_PENALTY = 0.3
SHARED_MEMORY_LIMIT = 48 * 2**10
"""Bytes a block that every CUDA device has without being asked for more."""
MEMORY_PENALTY = 0.1
LEAST_EFFICIENCY, MOST_EFFICIENCY = -0.9, 9.0
"""Bounds of what `paper_bounded` adds for time and memory: the slowest correct kernel (0.1) is worth more than any
failure."""

MOST_DOUBLINGS = 1.0
"""Twice as fast as what there was, or half as fast, is as far as `improvement` looks."""
BRIEF_NOISE = 0.035
"""Of times that are not from the finals, either way: what the order of programs moves them by in the median."""
FAILURES = {"mismatch": -1.2, "timed_out": -1.3, "crashed": -1.4, "compile_failed": -1.6, "rejected": -1.8}
"""Of `improvement`: all are below the slowest correct kernel, -1."""

CACHED_BYTES = 32 * 2**20
"""Matrices of more bytes do not stay in a GPU's L2 between two products of a solver that has other data as well."""


@dataclass(frozen=True)
class Standard:
    """What a kernel is held against: library routines and CSR on the same workload."""

    best_us: float
    default_us: float
    csr_bytes: int
    best_cold_us: float | None = None
    """With the L2 flushed; None for estimates."""
    default_cold_us: float | None = None
    rival: Timing | None = None
    """What an improvement is one over: the parent's time, or the best known of the workload; None: the best routine"""


def standard_of(baselines: Baselines, csr_bytes: int, rival: Timing | None = None) -> Standard:
    """What the kernels of a workload are held against; `rival`: what an improvement is one over, instead of the best
    routine."""
    best, default = baselines.best_routine().timing, baselines.default_routine().timing
    return Standard(best.median_us, default.median_us, csr_bytes, _cold_us(best), _cold_us(default), rival or best)


def _cold_us(timing: Timing) -> float | None:
    return timing.cold_us if isinstance(timing, MeasuredTiming) else None


Failure = Rejected | CompileFailed | Mismatch | Crashed | TimedOut
RewardFunction = Callable[[Outcome, Standard], float]


def milestone(outcome: Outcome, standard: Standard) -> float:
    """Tiers up to correctness, then the log speed-up over the best baseline; from -1 to 2.

        rejected -1.0 < compile_failed -0.8 < crashed -0.6 < timed_out -0.5 < mismatch -0.4
        passed    0.2 + clip(shrink(log2(speed-up), log2(1.02)), -0.5, 1.8)

    where shrink(s, m) = sign(s) max(0, |s| - m) is the noise margin and the speed-up is that of `paid_speedup`. A
    timeout of the compiler counts as compile_failed. Own scheme: SparseRL's reward grows without bound with an easy
    baseline and pays for noise.
    """
    match outcome:
        case Passed():
            speedup = paid_speedup(outcome.timing, standard.best_us, standard.best_cold_us, standard.csr_bytes)
            return milestone_of_passed(log2(speedup))
        case Rejected():
            return REJECTED
        case CompileFailed():
            return COMPILE_FAILED
        case Mismatch():
            return MISMATCH
        case Crashed():
            return CRASHED
        case TimedOut():
            return COMPILE_FAILED if outcome.stage == "compile" else TIMED_OUT
        case _:
            assert_never(outcome)


def milestone_of_passed(doublings: float) -> float:
    """What `milestone` pays for a kernel that passes, by the binary logarithm of its speed-up."""
    return CORRECT + min(max(_shrink(doublings, log2(1 + NOISE_MARGIN)), SLOWEST), FASTEST)


def paper(outcome: Outcome, standard: Standard) -> float:
    """The reward of SparseRL (ICLR 2026), as a sum, without bounds.

        compile   +0.5 or -0.5
        test      +0.5 or -0.5, once it compiles
        passed    r_eff (speed-up over the default - 1) - r_penalty [shared memory of a block > 48 KiB]

    with r_eff = 1 and r_penalty = 0.3. A slow kernel that is right may be worth less than one that is wrong.
    """
    match outcome:
        case Passed():
            over = outcome.resources.shared_bytes > SHARED_MEMORY_LIMIT
            efficiency = EFFICIENCY_WEIGHT * (_over_default(outcome, standard) - 1)
            return COMPILES + TEST_PASSES + efficiency - SHARED_MEMORY_PENALTY * over
        case _:
            return _paper_failure(outcome)


def paper_bounded(outcome: Outcome, standard: Standard) -> float:
    """`paper` with a penalty for the format's memory, and bounds; from -0.5 to 10.

        passed    clip(r_eff (speed-up over the default - 1) - lambda max(0, format_bytes / csr_bytes - 1), -0.9, 9)

    with r_eff = 1 and lambda = 0.1. Without the bounds a slow or padded kernel that is right is worth less than one
    that is wrong, and one that is beyond belief outweighs the rest.
    """
    match outcome:
        case Passed():
            overhead = max(0.0, outcome.format_bytes / standard.csr_bytes - 1)
            efficiency = EFFICIENCY_WEIGHT * (_over_default(outcome, standard) - 1) - MEMORY_PENALTY * overhead
            return COMPILES + TEST_PASSES + min(max(efficiency, LEAST_EFFICIENCY), MOST_EFFICIENCY)
        case _:
            return _paper_failure(outcome)


def _over_default(outcome: Passed, standard: Standard) -> float:
    return paid_speedup(outcome.timing, standard.default_us, standard.default_cold_us, standard.csr_bytes)


def _paper_failure(outcome: Failure) -> float:
    match outcome:
        case Rejected() | CompileFailed():
            return -COMPILES
        case Mismatch() | Crashed():
            return COMPILES - TEST_PASSES
        case TimedOut():
            return -COMPILES if outcome.stage == "compile" else COMPILES - TEST_PASSES
        case _:
            assert_never(outcome)


def improvement(outcome: Outcome, standard: Standard) -> float:
    """Doublings of speed over the parent, or over the best that was known of the workload; from -1.8 to 1.

        rejected -1.8 < compile_failed -1.6 < crashed -1.4 < timed_out -1.3 < mismatch -1.2
        passed    0 where the two times' intervals touch, else clip(log2(rival / child), -1, 1)

    Bounded so that one measurement that cannot be moves no weight further than twice the speed does. Its zero is where
    the workload stands: whatever is easy on it is in the rival's time, too. Own scheme.
    """
    match outcome:
        case Passed():
            rival_us, rival_cold_us = standard.best_us, standard.best_cold_us
            low_us, high_us = rival_us, rival_us
            if standard.rival is not None:
                rival_us, rival_cold_us = standard.rival.median_us, _cold_us(standard.rival)
                low_us, high_us = interval_us(standard.rival)
            own_low_us, own_high_us = interval_us(outcome.timing)
            if own_low_us <= high_us and low_us <= own_high_us:
                return 0.0
            gain = log2(paid_speedup(outcome.timing, rival_us, rival_cold_us, standard.csr_bytes))
            return min(max(gain, -MOST_DOUBLINGS), MOST_DOUBLINGS)
        case TimedOut(stage="compile"):
            return FAILURES["compile_failed"]
        case _:
            return FAILURES[outcome.outcome]


def interval_us(timing: Timing) -> tuple[float, float]:
    """Where a time may lie: its confidence interval, wider where it is brief; an estimate has no noise."""
    if not isinstance(timing, MeasuredTiming):
        return timing.median_us, timing.median_us
    if timing.is_final:
        return timing.low_us, timing.high_us
    return timing.low_us / (1 + BRIEF_NOISE), timing.high_us * (1 + BRIEF_NOISE)


def paid_speedup(timing: Timing, baseline_us: float, baseline_cold_us: float | None, csr_bytes: int) -> float:
    """Of warm products over a baseline's. Where the matrix does not stay cached, a gain is at most that of cold ones.

    There a program that pins its matrix in the L2 is faster only as long as nobody else uses the GPU.
    """
    warm = baseline_us / max(timing.median_us, 1e-3)
    if warm <= 1 or csr_bytes <= CACHED_BYTES or baseline_cold_us is None or not isinstance(timing, MeasuredTiming):
        return warm
    return max(1.0, min(warm, baseline_cold_us / max(timing.cold_us, 1e-3)))


REWARDS: Mapping[str, RewardFunction] = {
    "milestone": milestone,
    "improvement": improvement,
    "paper": paper,
    "paper_bounded": paper_bounded,
}
"""Every scheme by name; the first is the default."""


def rewards(outcome: Outcome, standard: Standard) -> dict[str, float]:
    """The outcome's reward under every scheme."""
    return {name: scheme(outcome, standard) for name, scheme in REWARDS.items()}


def _shrink(value: float, margin: float) -> float:
    """Towards zero by the margin, and zero within it."""
    return max(0.0, value - margin) + min(0.0, value + margin)
