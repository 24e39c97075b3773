"""What an outcome is worth to the trainer: reward schemes as pure functions, selectable by name."""

from collections.abc import Callable, Mapping
from math import log2
from typing import assert_never

from sparsesmith_proto.kernel import CompileFailed, Crashed, Mismatch, Outcome, Passed, Rejected, TimedOut

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
MEMORY_PENALTY = 0.1

RewardFunction = Callable[[Outcome, float, float, int], float]
"""(outcome, best_baseline_us, default_baseline_us, csr_bytes) -> reward."""


def milestone(outcome: Outcome, best_baseline_us: float, default_baseline_us: float, csr_bytes: int) -> float:
    """Tiers up to correctness, then the log speed-up over the best baseline; from -1 to 2.

        rejected -1.0 < compile_failed -0.8 < crashed -0.6 < timed_out -0.5 < mismatch -0.4
        passed    0.2 + clip(shrink(log2(best_baseline_us / median_us), log2(1.02)), -0.5, 1.8)

    where shrink(s, m) = sign(s) max(0, |s| - m) is the noise margin. A timeout of the compiler counts as
    compile_failed. Own scheme: SparseRL's reward grows without bound with an easy baseline and pays for noise.
    """
    match outcome:
        case Passed():
            speedup = log2(best_baseline_us / max(outcome.timing.median_us, 1e-3))
            return CORRECT + min(max(_shrink(speedup, log2(1 + NOISE_MARGIN)), SLOWEST), FASTEST)
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


def paper(outcome: Outcome, best_baseline_us: float, default_baseline_us: float, csr_bytes: int) -> float:
    """The reward of SparseRL (ICLR 2026), as a sum.

        compile   +0.5 or -0.5
        test      +0.5 or -0.5, once it compiles
        passed    r_eff (default_baseline_us / median_us - 1) - lambda max(0, format_bytes / csr_bytes - 1)

    with r_eff = 1 and lambda = 0.1; the paper names the memory penalty without its scale.
    """
    match outcome:
        case Passed():
            speedup = default_baseline_us / max(outcome.timing.median_us, 1e-3)
            overhead = max(0.0, outcome.format_bytes / csr_bytes - 1)
            return COMPILES + TEST_PASSES + EFFICIENCY_WEIGHT * (speedup - 1) - MEMORY_PENALTY * overhead
        case Rejected() | CompileFailed():
            return -COMPILES
        case Mismatch() | Crashed():
            return COMPILES - TEST_PASSES
        case TimedOut():
            return -COMPILES if outcome.stage == "compile" else COMPILES - TEST_PASSES
        case _:
            assert_never(outcome)


REWARDS: Mapping[str, RewardFunction] = {"milestone": milestone, "paper": paper}
"""Every scheme by name; the first is the default."""


def rewards(outcome: Outcome, best_baseline_us: float, default_baseline_us: float, csr_bytes: int) -> dict[str, float]:
    """The outcome's reward under every scheme."""
    return {name: scheme(outcome, best_baseline_us, default_baseline_us, csr_bytes) for name, scheme in REWARDS.items()}


def _shrink(value: float, margin: float) -> float:
    """Towards zero by the margin, and zero within it."""
    return max(0.0, value - margin) + min(0.0, value + margin)
