"""Reward schemes."""

from math import log2
from typing import Any

import pytest

from sparsesmith.reward import CACHED_BYTES, REWARDS, Standard, rewards
from sparsesmith_proto.kernel import (
    CompileFailed,
    Crashed,
    MeasuredTiming,
    Mismatch,
    Outcome,
    Passed,
    Rejected,
    Resources,
    TimedOut,
    Timing,
)


def passed(median_us: float = 10.0, format_bytes: int = 1000, cold_us: float | None = None) -> Passed:
    timing = MeasuredTiming(
        median_us=median_us,
        low_us=median_us,
        high_us=median_us,
        cold_us=median_us if cold_us is None else cold_us,
        num_batches=10,
        stable=True,
        sm_clock_mhz=1980,
    )
    return Passed(
        timing=timing,
        resources=Resources(registers=32, spill_bytes=0, shared_bytes=0, compile_ms=50),
        storage_format="csr",
        format_bytes=format_bytes,
        conversion_ms=1,
        worst_error=1e-7,
        num_inputs=5,
    )


WRONG: tuple[Outcome, ...] = (
    Rejected(message="no format directive"),
    CompileFailed(log="error"),
    TimedOut(stage="compile", limit_s=10, message="compiler"),
    Crashed(message="illegal address"),
    TimedOut(stage="run", limit_s=10, message="kernel"),
    Mismatch(message="row 3"),
)


def milestone(outcome: Outcome, best_us: float = 10.0) -> float:
    return REWARDS["milestone"](outcome, Standard(best_us, 2 * best_us, 1000))


def improvement(outcome: Outcome, rival: Timing | None = None) -> float:
    return REWARDS["improvement"](outcome, Standard(10.0, 20.0, 1000, rival=rival))


def paper_bounded(outcome: Outcome, default_us: float = 20.0, csr_bytes: int = 1000) -> float:
    return REWARDS["paper_bounded"](outcome, Standard(default_us / 2, default_us, csr_bytes))


def paper(outcome: Outcome, default_us: float = 20.0, csr_bytes: int = 1000) -> float:
    return REWARDS["paper"](outcome, Standard(default_us / 2, default_us, csr_bytes))


def test_milestone_rises_with_every_stage_that_a_kernel_reaches() -> None:
    assert [milestone(outcome) for outcome in WRONG] == [-1.0, -0.8, -0.8, -0.6, -0.5, -0.4]


def test_the_slowest_correct_kernel_is_worth_more_than_any_wrong_one() -> None:
    assert milestone(passed(median_us=1e9)) > max(milestone(outcome) for outcome in WRONG)


def test_milestone_pays_the_log_speedup_over_the_best_baseline_less_the_noise_margin() -> None:
    assert milestone(passed(median_us=5)) == pytest.approx(0.2 + 1 - log2(1.02))


@pytest.mark.parametrize("median_us", [9.81, 10.0, 10.19])
def test_milestone_takes_a_difference_within_the_noise_margin_for_none(median_us: float) -> None:
    assert milestone(passed(median_us=median_us)) == pytest.approx(0.2)


def test_milestone_is_bounded() -> None:
    assert milestone(passed(median_us=0.0)) == pytest.approx(2.0)
    assert milestone(passed(median_us=1e9)) == pytest.approx(-0.3)


def test_paper_adds_compile_test_and_speedup_over_the_default_routine() -> None:
    assert paper(passed(median_us=10)) == pytest.approx(0.5 + 0.5 + 1.0)
    assert paper(passed(median_us=40)) == pytest.approx(0.5 + 0.5 - 0.5)


def test_paper_scores_wrong_kernels_by_whether_they_compile() -> None:
    assert [paper(outcome) for outcome in WRONG] == [-0.5, -0.5, -0.5, 0.0, 0.0, 0.0]


def test_paper_takes_three_tenths_for_shared_memory_beyond_what_every_device_has_and_nothing_for_a_format() -> None:
    def with_shared(shared_bytes: int) -> Passed:
        resources = Resources(registers=32, spill_bytes=0, shared_bytes=shared_bytes, compile_ms=50)
        return passed().model_copy(update={"resources": resources})

    assert paper(with_shared(48 * 1024)) == paper(passed())
    assert paper(with_shared(48 * 1024 + 1)) == pytest.approx(paper(passed()) - 0.3)
    assert paper(passed(format_bytes=10**9)) == paper(passed())


def test_paper_has_no_bounds() -> None:
    assert paper(passed(median_us=0.02)) == pytest.approx(0.5 + 0.5 + 999)
    assert paper(passed(median_us=1e9)) == pytest.approx(0.0, abs=1e-6)


def test_the_bounded_paper_charges_for_memory_beyond_csr_and_gives_nothing_for_less() -> None:
    assert paper_bounded(passed(format_bytes=3000)) == pytest.approx(paper_bounded(passed()) - 0.2)
    assert paper_bounded(passed(format_bytes=500)) == pytest.approx(paper_bounded(passed()))


def test_rewards_gives_every_scheme_by_name() -> None:
    outcome = passed(median_us=5)
    assert rewards(outcome, Standard(10, 20, 1000)) == {
        "milestone": milestone(outcome),
        "improvement": improvement(outcome),
        "paper": paper(outcome),
        "paper_bounded": paper_bounded(outcome),
    }


def test_any_correct_kernel_is_worth_more_than_any_failure_to_the_bounded_paper_too() -> None:
    worst = paper_bounded(passed(median_us=1e9, format_bytes=10**9))
    assert worst == pytest.approx(0.1)
    assert worst > max(paper_bounded(outcome) for outcome in WRONG)


def test_a_time_that_cannot_be_outweighs_nothing() -> None:
    assert paper_bounded(passed(median_us=1e-3)) == pytest.approx(10.0)


def timing(median_us: float, noise: float = 0.01, is_final: bool = True) -> Timing:
    interval = {"low_us": median_us * (1 - noise), "high_us": median_us * (1 + noise)}
    return passed(median_us).timing.model_copy(update={**interval, "is_final": is_final})


def child(median_us: float, **changes: Any) -> Passed:
    return passed().model_copy(update={"timing": timing(median_us, **changes)})


def test_an_improvement_is_the_doublings_of_speed_over_its_rival() -> None:
    assert improvement(child(8.0), timing(12.0)) == pytest.approx(log2(1.5))
    assert improvement(child(12.0), timing(8.0)) == pytest.approx(-log2(1.5))
    assert improvement(passed(8.0)) == pytest.approx(log2(10 / 8)), "without a rival the best routine is it"


def test_what_lies_inside_the_interval_of_the_pair_is_no_improvement() -> None:
    assert improvement(child(9.9), timing(10.0)) == 0
    assert improvement(child(9.7), timing(10.0)) > 0
    assert improvement(child(9.7, is_final=False), timing(10.0)) == 0, "a brief time is good to a few per cent"
    assert improvement(child(9.0, is_final=False), timing(10.0, is_final=False)) > 0


def test_failures_have_tiers_below_the_slowest_kernel_that_is_right() -> None:
    assert [improvement(outcome) for outcome in WRONG] == [-1.8, -1.6, -1.6, -1.4, -1.3, -1.2]
    assert improvement(child(1e9), timing(10.0)) == -1


@pytest.mark.parametrize("speedup", [2.05, 100.0, 1e9])
def test_no_speedup_is_worth_more_than_twice_the_speed(speedup: float) -> None:
    assert improvement(child(10 / speedup), timing(10.0)) == 1


@pytest.mark.parametrize("scheme", REWARDS)
def test_a_gain_that_a_flushed_cache_takes_away_is_not_paid_where_the_matrix_does_not_stay_in_it(scheme: str) -> None:
    def reward(csr_bytes: int, **timing: float) -> float:
        standard = Standard(20, 20, csr_bytes, best_cold_us=20, default_cold_us=20)
        return REWARDS[scheme](passed(format_bytes=csr_bytes, **timing), standard)

    large, small = CACHED_BYTES + 1, CACHED_BYTES
    pinned, honest = {"median_us": 5.0, "cold_us": 16.0}, {"median_us": 16.0, "cold_us": 16.0}
    assert reward(large, **pinned) == pytest.approx(reward(large, **honest))
    assert reward(small, **pinned) > reward(small, **honest)
    slow = {"median_us": 40.0, "cold_us": 50.0}
    assert reward(large, **slow) == pytest.approx(reward(small, **slow))
