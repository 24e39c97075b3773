"""The statistics behind every reported time."""

from math import comb

import numpy as np
import pytest

from services.evaluator.measuring.interval import (
    FULL,
    QUICK,
    ByteFloor,
    TimingBudget,
    interval_rank,
    is_suspicious,
    l2_bandwidth_bound_gbs,
    measure,
    measure_interleaved,
    median_interval,
    repeats_for,
    settled_repeats,
)


def make_budget(**changes: float) -> TimingBudget:
    budget = {"warm_up_batches": 0, "min_batches": 6, "max_batches": 40, "max_us": 1e9, "relative_interval": 0.01}
    return TimingBudget(**(budget | changes))  # type: ignore[arg-type]


class Series:
    """Batches that return given times in turn, the last one for ever."""

    def __init__(self, *times_us: float) -> None:
        self._times_us = list(times_us)
        self.taken = 0

    def __call__(self) -> float:
        self.taken += 1
        return self._times_us[min(self.taken, len(self._times_us)) - 1]


@pytest.mark.parametrize(("num_samples", "rank"), [(1, 0), (5, 0), (6, 1), (8, 1), (9, 2), (15, 4), (20, 6), (64, 24)])
def test_the_rank_of_the_interval_is_that_of_the_tables(num_samples: int, rank: int) -> None:
    assert interval_rank(num_samples) == rank


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    random = np.random.default_rng(20261121)
    hits = 0
    for _ in range(4000):
        interval = median_interval(list(random.exponential(1.0, size=15)))
        hits += interval.low_us <= np.log(2) <= interval.high_us
    exact = 1 - 2 * sum(comb(15, k) for k in range(4)) / 2**15
    assert hits / 4000 == pytest.approx(exact, abs=0.012)


def test_fewer_than_six_batches_are_never_said_to_be_certain() -> None:
    interval = median_interval([10.0, 10.0, 10.0, 10.0, 10.0])
    assert (interval.median_us, interval.low_us, interval.high_us) == (10.0, 10.0, 10.0)
    assert not interval.reaches_confidence
    assert not interval.is_narrower_than(0.01)


def test_one_slow_batch_moves_neither_the_median_nor_the_interval_of_twenty() -> None:
    interval = median_interval([*[10.0] * 19, 5000.0])
    assert (interval.median_us, interval.low_us, interval.high_us) == (10.0, 10.0, 10.0)


def test_measuring_stops_as_soon_as_the_interval_is_narrow() -> None:
    series = Series(10.0)
    interval = measure(series, 1, make_budget())
    assert interval.num_batches == 6 == series.taken


def test_measuring_goes_on_while_the_interval_is_wide() -> None:
    series = Series(*[10.0, 11.0] * 30)
    interval = measure(series, 1, make_budget(max_batches=30))
    assert interval.num_batches == 30
    assert not interval.is_narrower_than(0.01)


def test_measuring_stops_when_the_device_time_is_spent() -> None:
    series = Series(*[10.0, 11.0] * 30)
    assert measure(series, 100, make_budget(max_us=10_000)).num_batches == 10


def test_a_very_slow_program_does_not_get_the_minimum_number_of_batches() -> None:
    series = Series(100_000.0)
    interval = measure(series, 1, QUICK)
    assert series.taken == 1 + QUICK.warm_up_batches
    assert not interval.reaches_confidence


def test_warm_up_batches_are_not_counted() -> None:
    series = Series(1000.0, 500.0, 10.0)
    assert measure(series, 1, make_budget(warm_up_batches=2)).high_us == 10.0


def test_interleaved_programs_see_the_same_drift() -> None:
    clock = {"batches": 0}

    def drifting(base_us: float) -> float:
        clock["batches"] += 1
        return base_us * (1 + 0.01 * clock["batches"])

    fast, slow = measure_interleaved(
        [lambda: drifting(10.0), lambda: drifting(20.0)], [1, 1], make_budget(max_batches=40, relative_interval=0.0)
    )
    assert slow.median_us / fast.median_us == pytest.approx(2.0, rel=0.01)


def test_interleaving_needs_repeats_for_every_program() -> None:
    with pytest.raises(ValueError, match="2 batches with 1 repeats"):
        measure_interleaved([Series(1.0), Series(1.0)], [1], FULL)


@pytest.mark.parametrize(("sequence_us", "repeats"), [(0.0, 512), (2.0, 500), (10.0, 100), (300.0, 4), (5000.0, 1)])
def test_a_batch_is_about_as_long_as_asked(sequence_us: float, repeats: int) -> None:
    assert repeats_for(sequence_us, FULL) == repeats


@pytest.mark.parametrize(
    ("single_us", "several_us", "repeats"),
    [
        ([3.0], [1.5], 512),
        ([2000.0, 3.0], [4.0], 250),  # Another process had the GPU: with one repeat every batch would hold a start.
        ([3.0], [60.0, 4.0], 250),
        ([2000.0], [], 1),
        ([400.0], [400.0], 3),
    ],
    ids=["quiet", "single disturbed", "several disturbed", "long", "of some"],
)
def test_a_first_batch_that_was_disturbed_leaves_no_batch_too_few_repeats(
    single_us: list[float], several_us: list[float], repeats: int
) -> None:
    assert settled_repeats(Series(*single_us), lambda: Series(*several_us), FULL) == repeats


def test_a_matrix_that_fits_the_l2_is_bound_by_the_l2_when_warm_and_by_memory_when_cold() -> None:
    floor = ByteFloor(required_bytes=20_000_000, l2_bytes=60_000_000, dram_gbs=4000, l2_gbs=16000)
    assert floor.warm_us == pytest.approx(1.25)
    assert floor.cold_us == pytest.approx(5.0)


def test_what_the_l2_cannot_hold_must_come_from_memory() -> None:
    floor = ByteFloor(required_bytes=460_000_000, l2_bytes=60_000_000, dram_gbs=4000, l2_gbs=16000)
    assert floor.warm_us == pytest.approx(100.0)


def test_the_l2_bound_of_an_h200_is_above_any_measured_rate() -> None:
    assert l2_bandwidth_bound_gbs(132, 1980) == pytest.approx(16727, rel=0.001)


def test_a_run_on_a_new_input_that_takes_longer_than_one_as_it_was_left_is_suspicious() -> None:
    assert is_suspicious(fresh_us=42.0, stale_us=4.0, empty_us=2.0)
    assert is_suspicious(fresh_us=5.0, stale_us=4.0, empty_us=2.0)
    assert not is_suspicious(fresh_us=4.7, stale_us=4.0, empty_us=2.0)
    assert not is_suspicious(fresh_us=46.0, stale_us=42.0, empty_us=2.0)
    assert is_suspicious(fresh_us=50.0, stale_us=42.0, empty_us=2.0)
