"""How HYB splits a matrix: slots for every row, and what that leaves to the remainder."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sparsesmith.families.axes import WIDEST
from sparsesmith.families.estimates.cost import Work
from sparsesmith.families.estimates.suitability import SLOTS_TOO_FEW_TO_MATTER
from sparsesmith.formats.hyb import rows_within_reach, slice_bases, within_reach
from sparsesmith.matrix.pattern import Int32Array, Pattern

Rest = Literal["rows", "coo"]

MIN_ELL_PADDING = 1.25
"""Below that, ELL and SELL have nothing to lose."""
MAX_REST_SHARE = 0.6
MAX_PADDING = 2.0
"""Slots a nonzero, where slots are so many that they take time to read."""
OTHER_WIDTH = 1.3
"""By how much a second choice of width differs from the first, at least."""
REST_ROW_SLOTS = 16
"""What a row of the remainder costs beside its nonzeros, in slots: its number, its offsets, its shuffles."""
REST_NONZERO_SLOTS = 2.5
"""What a nonzero of a remainder in coordinates costs: its row, its share of the scan and the atomics."""


@dataclass(frozen=True)
class Split:
    """What a width stores where."""

    width: int
    slots: int
    """Of the regular part."""
    rest: int
    """Nonzeros of the remainder."""
    rest_lengths: Int32Array
    """Row lengths of a remainder of whole rows, descending; none for coordinates."""

    @property
    def cost(self) -> float:
        rows = self.rest_lengths.size
        return self.slots + (self.rest + REST_ROW_SLOTS * rows if rows else REST_NONZERO_SLOTS * self.rest)


def splits(pattern: Pattern, rest: Rest, is_narrow: bool) -> list[Split]:
    """Every width that leaves a small remainder and little padding, the cheapest first."""
    lengths = pattern.row_lengths
    reached = _reached(pattern, rest) if is_narrow else lengths
    counts = np.bincount(np.minimum(reached, WIDEST + 1), minlength=WIDEST + 2)
    lost = pattern.nnz - int(reached.sum())
    found = []
    for width in range(1, min(WIDEST, int(lengths.max())) + 1):
        if rest == "rows":
            kept = int((np.arange(width + 1) * counts[: width + 1]).sum())
            remainder = pattern.nnz - kept
        else:
            remainder = lost + int(np.maximum(reached - width, 0).sum())
        slots = width * pattern.num_rows
        is_small = 0 < remainder <= MAX_REST_SHARE * pattern.nnz
        if is_small and slots <= max(MAX_PADDING * pattern.nnz, SLOTS_TOO_FEW_TO_MATTER):
            whole = (lengths > width) | (reached < lengths) if rest == "rows" else np.zeros(lengths.size, np.bool_)
            found.append(Split(width, slots, remainder, -np.sort(-lengths[whole])))
    return sorted(found, key=lambda split: split.cost)


def _reached(pattern: Pattern, rest: Rest) -> Int32Array:
    """Nonzeros of each row that 16-bit columns can name; of whole rows, none unless all."""
    bases = slice_bases(pattern)
    if rest == "rows":
        return np.where(rows_within_reach(pattern, bases), pattern.row_lengths, 0).astype(np.int32)
    before = np.concatenate([[0], np.cumsum(within_reach(pattern, bases), dtype=np.int32)])
    return np.diff(before[pattern.row_offsets]).astype(np.int32)


def split_choices(work: Work, rest: Rest) -> Iterator[tuple[str, Split]]:
    """Index widths and splits worth trying; none where rows are so even that there is nothing to split off."""
    uneven = work.statistics.ell_padding >= MIN_ELL_PADDING
    for index in ("u16", "i32"):
        gains = index == "u16" and not work.statistics.narrow_slices(32, 1)
        if not uneven and not gains:
            continue
        found = splits(work.statistics.pattern, rest, index == "u16")
        for split in found[:1] + [other for other in found if _differ(other.width, found[0].width)][:1]:
            yield index, split


def _differ(left: int, right: int) -> bool:
    return max(left, right) >= OTHER_WIDTH * min(left, right)


def split_bytes(work: Work, split: Split, index: str, row_bytes: int) -> float:
    """What is read of the matrix; `row_bytes` for each nonzero of the remainder."""
    slot_bytes = work.element_bytes + (2 if index == "u16" else 4)
    return split.slots * slot_bytes + split.rest * (work.element_bytes + 4.0 + row_bytes)
