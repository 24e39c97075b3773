"""What a person reads of a time says whether it can be trusted."""

from sparsesmith.cli.rendering import describe_timing
from sparsesmith_proto.kernel import EstimatedTiming, MeasuredTiming


def make_timing(**changes: object) -> MeasuredTiming:
    fields = {"median_us": 10.0, "low_us": 9.98, "high_us": 10.02, "cold_us": 20.0, "num_batches": 12, "stable": True,
              "sm_clock_mhz": 1980}  # fmt: skip
    return MeasuredTiming.model_validate(fields | changes)


def test_a_steady_time_is_shown_with_its_interval_and_its_verdict() -> None:
    assert describe_timing(make_timing()) == (
        "10.00 us measured (95 % 9.98 to 10.02; cold cache 20.00), "
        "steady (95 % interval 0.4 % wide, 12 batches; SM at 1980 MHz; undisturbed)"
    )


def test_an_unsteady_time_says_what_disturbed_it() -> None:
    shown = describe_timing(make_timing(stable=False, num_attempts=3, disturbances=("power cap",)))
    assert shown.endswith("UNSTEADY (95 % interval 0.4 % wide, 12 batches; SM at 1980 MHz; measured 3 times; "
                          "disturbed: power cap)")  # fmt: skip


def test_an_estimate_has_no_noise() -> None:
    timing = EstimatedTiming(median_us=3.5, traffic_model="sector-v2")
    assert describe_timing(timing) == "3.50 us estimated by traffic model sector-v2"
