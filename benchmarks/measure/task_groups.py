"""Which tasks and sizes are compared with which."""

from collections.abc import Mapping, Sequence
from typing import Any

REDUCTIONS = ("mse", "sum", "dot", "monte_carlo", "cross_entropy", "histogram", "least_squares")
"""FSR's seven reduction-like tasks, whose naive programs add up by atomics."""
UNCOMPARED = ("bubble_sort", "softmax")
"""Left out of ratios: one whose algorithm is prescribed, one that is not among the twenty."""
LONGEST_NAIVE_US = 5e6
"""Sizes whose naive program takes longer are left out of ratios: they would be about that program alone."""
SLOWER = 0.9
"""Of a library's speed: sizes below it are listed."""


def is_compared(row: Mapping[str, Any]) -> bool:
    """Whether a row counts in ratios."""
    return bool(row.get("best")) and row["task"] not in UNCOMPARED and row["naive_us"] <= LONGEST_NAIVE_US


def best_us(row: Mapping[str, Any]) -> float:
    """What a user gets of a row: the naive program where nothing is faster."""
    return float(min(row["best"]["us"], row["naive_us"]))


def require_one_device(rows: Sequence[Mapping[str, Any]], device: str) -> None:
    """Raises ValueError where a row was measured on another device: a mean over both would be about neither."""
    others = {row["device"] for row in rows if row.get("device", device) != device}
    if others:
        raise ValueError(f"rows of {', '.join(sorted(others))} among those of {device}")


def slower_than_a_library(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sizes of any task at which a library is clearly faster, by how much of its speed is reached."""
    timed = ((row, best_us(row)) for row in rows if "library_us" in row and row.get("best"))
    ratios = [(row["library_us"] / ours, f"{row['task']} {row['axes']}") for row, ours in timed if ours > 0]
    return [f"{size}: {ratio:.2f}" for ratio, size in sorted(ratios) if ratio < SLOWER]
