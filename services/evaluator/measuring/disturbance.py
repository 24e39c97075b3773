"""Whether the GPU was left alone while something was measured, and measuring again where it was not.

What this does not protect against: a change that lasts less than the time between two readings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

CLOCK_TOLERANCE = 0.05
"""Two readings of the SM clock further apart than this are a disturbance."""

Measurement = TypeVar("Measurement")


@dataclass(frozen=True)
class ClockReading:
    """The state of the GPU at one moment; zeros where the driver does not tell."""

    sm_clock_mhz: int = 0
    memory_clock_mhz: int = 0
    power_w: float = 0.0
    temperature_c: int = 0
    throttling: tuple[str, ...] = ()


def disturbances(before: ClockReading, after: ClockReading) -> tuple[str, ...]:
    """What throttled the GPU or changed its clock between two readings taken under load, in words."""
    found = list(dict.fromkeys(before.throttling + after.throttling))
    if before.sm_clock_mhz and after.sm_clock_mhz:
        moved = abs(after.sm_clock_mhz - before.sm_clock_mhz)
        if moved > CLOCK_TOLERANCE * before.sm_clock_mhz:
            found.append(f"SM clock moved from {before.sm_clock_mhz} to {after.sm_clock_mhz} MHz")
    return tuple(found)


@dataclass(frozen=True)
class Attempted(Generic[Measurement]):
    """The last of one or more attempts."""

    measurement: Measurement
    num_attempts: int
    disturbances: tuple[str, ...]
    """Of the last attempt; empty: it was left alone."""
    clock: ClockReading
    """Right after it."""


def measure_undisturbed(
    take: Callable[[], Measurement], read_clocks: Callable[[], ClockReading], max_attempts: int
) -> Attempted[Measurement]:
    """Measures until nothing disturbs it, at most max_attempts (one or more) times; the last attempt counts."""
    num_attempts = 0
    while True:
        before = read_clocks()
        measurement = take()
        after = read_clocks()
        num_attempts += 1
        found = disturbances(before, after)
        if not found or num_attempts >= max_attempts:
            return Attempted(measurement, num_attempts, found, after)
