"""Whether what a stack holds grows: slopes of the series that the soak kept."""

import math
from collections.abc import Sequence
from statistics import fmean

SETTLED_SHARE = 1 / 3
"""Of the time, at its beginning, that a slope leaves out."""
LEAST_SAMPLES = 6
FLAT_MIB_A_MINUTE = 0.5
"""A slope that is no more than this, or not told from 0 by twice its standard error, is called flat."""

Series = Sequence[tuple[float, float]]
"""Seconds and MiB."""


def series_until(seconds: Sequence[float], mib: Sequence[float | None], end_s: float) -> Series:
    """Samples of a kind that was there, up to an end."""
    return [(second, held) for second, held in zip(seconds, mib, strict=True) if held is not None and second <= end_s]


def slope_of(series: Series) -> dict[str, float | bool] | None:
    """MiB a minute over the last two thirds, by least squares, with its standard error. None: too few samples."""
    first = series[0][0] + SETTLED_SHARE * (series[-1][0] - series[0][0]) if series else 0.0
    settled = [(second / 60, mib) for second, mib in series if second >= first]
    if len(settled) < LEAST_SAMPLES:
        return None
    mean_minute, mean_mib = (fmean(column) for column in zip(*settled, strict=True))
    spread = math.fsum((minute - mean_minute) ** 2 for minute, _ in settled)
    slope = math.fsum((minute - mean_minute) * (mib - mean_mib) for minute, mib in settled) / spread
    left = math.fsum((mib - mean_mib - slope * (minute - mean_minute)) ** 2 for minute, mib in settled)
    error = math.sqrt(left / (len(settled) - 2) / spread)
    is_flat = slope <= FLAT_MIB_A_MINUTE or slope <= 2 * error
    return {"mib_a_minute": round(slope, 3), "standard_error": round(error, 3), "is_flat": is_flat}
