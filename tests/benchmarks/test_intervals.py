"""Intervals of what was counted of several things."""

import numpy as np
import pytest

from benchmarks.report.intervals import RESAMPLES, Interval, geometric_interval, mean_interval, resampled


def test_an_interval_holds_its_mean_and_is_the_same_each_time() -> None:
    mean, low, high = mean_interval([0.5, 1.0, 1.0, 0.9])
    assert mean == pytest.approx(0.85)
    assert low < mean < high
    assert mean_interval([0.5, 1.0, 1.0, 0.9]) == (mean, low, high)


def test_an_interval_of_many_values_is_as_wide_as_the_textbooks() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, size=400)
    mean, low, high = mean_interval(values.tolist())
    error = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((mean - error, mean + error), abs=0.1 * error)


def test_the_interval_of_a_geometric_mean_is_of_ratios() -> None:
    doubled = geometric_interval([2.0, 8.0, 4.0])
    assert doubled.mean == pytest.approx(4.0)
    assert doubled == pytest.approx([2.0**each for each in mean_interval([1.0, 3.0, 2.0])])


def test_draws_that_have_no_figure_are_left_out() -> None:
    ours, theirs = np.array([1.0, 2.0]), np.array([0.0, 1.0])

    def ratios(drawn: np.ndarray) -> np.ndarray:
        above, below = ours[drawn].sum(axis=1), theirs[drawn].sum(axis=1)
        assert drawn.shape == (RESAMPLES, 2)
        return np.asarray(above[below > 0] / below[below > 0])

    assert resampled(2, ratios) == (2.0, 3.0)


def test_a_result_file_keeps_four_digits() -> None:
    assert Interval(1 / 3, 0.0, 2 / 3).rounded() == {"mean": 0.3333, "low": 0.0, "high": 0.6667}
