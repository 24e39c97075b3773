"""The time of a short kernel is the mean over placements of its buffers."""

import pytest

from services.evaluator.measuring.placements import is_surely_placed, mean_margin, over_placements
from sparsesmith_proto.kernel import MeasuredTiming


def make_timing(median_us: float, **changes: object) -> MeasuredTiming:
    fields = {"median_us": median_us, "low_us": 0.995 * median_us, "high_us": 1.005 * median_us, "cold_us": 5.0,
              "num_batches": 3, "stable": False, "sm_clock_mhz": 1980}  # fmt: skip
    return MeasuredTiming.model_validate(fields | changes)


def test_a_kernel_that_depends_on_its_addresses_gets_the_mean_and_an_interval_as_wide_as_they_make_it() -> None:
    placed = over_placements([make_timing(us) for us in (1.4, 1.7, 1.4, 1.7)])
    # s = 0.1732, t of three degrees of freedom = 3.182
    assert placed.median_us == pytest.approx(1.55)
    assert [placed.low_us, placed.high_us] == pytest.approx([1.55 - 0.2756, 1.8256], abs=1e-4)
    assert placed.placements_us == (1.4, 1.7, 1.4, 1.7)
    assert placed.num_batches == 12
    assert "1.40 to 1.70 us at 4 placements of the buffers" in placed.noise_verdict()


@pytest.mark.parametrize(
    ("brief_us", "is_placed"), [([7.9, 30.0], True), ([8.1], False), ([9.9, 11.0], False), ([], False)]
)
def test_a_field_with_a_short_kernel_is_placed_without_a_look_and_any_other_is_looked_at(
    brief_us: list[float], is_placed: bool
) -> None:
    assert is_surely_placed(brief_us) is is_placed


def test_an_interval_never_reaches_below_zero() -> None:
    assert over_placements([make_timing(0.1), make_timing(9.9)]).low_us == 0


def test_a_time_is_stable_when_the_batches_agree_at_each_placement_and_nothing_disturbed_any() -> None:
    steady, loose = make_timing(1.4), make_timing(1.4, high_us=1.5)
    disturbed = make_timing(1.7, disturbances=("power cap",), num_attempts=3)
    assert over_placements([steady, make_timing(1.7)]).stable
    assert not over_placements([steady, loose]).stable
    told = over_placements([disturbed, steady, disturbed])
    assert (told.stable, told.disturbances, told.num_attempts) == (False, ("power cap",), 3)


def test_the_margin_of_a_mean_is_students() -> None:
    # Eight samples of s = 1: t of seven degrees of freedom is 2.3646.
    samples = [0.0, 0.0, 0.0, 0.0, 14**0.5 / 2, 14**0.5 / 2, 14**0.5 / 2, 14**0.5 / 2]
    assert mean_margin(samples) == pytest.approx(2.3646 / 8**0.5, rel=1e-4)
