"""A disturbed measurement is taken again, and the report says what disturbed it."""

from collections.abc import Callable, Iterator

import pytest

from services.evaluator.measuring.disturbance import Attempted, ClockReading, disturbances, measure_undisturbed
from sparsesmith_proto.kernel import MeasuredTiming

QUIET = ClockReading(sm_clock_mhz=1980)
SLOW = ClockReading(sm_clock_mhz=1500)
CAPPED = ClockReading(sm_clock_mhz=1980, throttling=("power cap",))


def measured_with(readings: list[ClockReading], max_attempts: int = 3) -> tuple[Attempted[int], int]:
    """What comes of readings before and after each attempt; attempt number n gives n."""
    taken: list[int] = []
    left: Iterator[ClockReading] = iter(readings)
    read: Callable[[], ClockReading] = left.__next__

    def take() -> int:
        taken.append(len(taken) + 1)
        return taken[-1]

    return measure_undisturbed(take, read, max_attempts), len(taken)


def test_an_undisturbed_measurement_is_taken_once() -> None:
    assert measured_with([QUIET, QUIET]) == (Attempted(1, 1, (), QUIET), 1)


def test_a_disturbed_measurement_is_taken_again_until_nothing_disturbs_it() -> None:
    attempted, taken = measured_with([QUIET, SLOW, SLOW, CAPPED, QUIET, QUIET])
    assert (attempted, taken) == (Attempted(3, 3, (), QUIET), 3)


def test_a_measurement_that_is_disturbed_every_time_says_by_what() -> None:
    attempted, taken = measured_with([QUIET, CAPPED, QUIET, SLOW], max_attempts=2)
    assert (attempted.num_attempts, taken) == (2, 2)
    assert attempted.disturbances == ("SM clock moved from 1980 to 1500 MHz",)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (QUIET, ClockReading(sm_clock_mhz=1900), ()),
        (ClockReading(), SLOW, ()),
        (CAPPED, CAPPED, ("power cap",)),
        (QUIET, ClockReading(sm_clock_mhz=1200, throttling=("power cap", "software thermal slowdown")),
         ("power cap", "software thermal slowdown", "SM clock moved from 1980 to 1200 MHz")),
    ],
)  # fmt: skip
def test_disturbances_are_named(before: ClockReading, after: ClockReading, found: tuple[str, ...]) -> None:
    assert disturbances(before, after) == found


def make_timing(**changes: object) -> MeasuredTiming:
    fields = {"median_us": 10.0, "low_us": 9.98, "high_us": 10.02, "cold_us": 20.0, "num_batches": 12, "stable": True,
              "sm_clock_mhz": 1980}  # fmt: skip
    return MeasuredTiming.model_validate(fields | changes)


def test_the_noise_verdict_of_a_steady_time_names_interval_batches_and_clock() -> None:
    assert make_timing().noise_verdict() == (
        "steady (95 % interval 0.4 % wide, 12 batches; SM at 1980 MHz; undisturbed)"
    )


def test_the_noise_verdict_of_a_disturbed_time_names_attempts_and_disturbances() -> None:
    timing = make_timing(stable=False, num_attempts=3, disturbances=("power cap",), sm_clock_mhz=0, high_us=10.98)
    assert timing.noise_verdict() == (
        "UNSTEADY (95 % interval 10 % wide, 12 batches; measured 3 times; disturbed: power cap)"
    )
