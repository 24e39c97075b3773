"""Prospects of the families that gather rows by length: where to cut, and what each cut stores."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from sparsesmith.families.estimates.cost import (
    BYTES_COUNT_NNZ,
    Prospect,
    Work,
    combine,
    estimate,
    index_bytes,
    loads,
)
from sparsesmith.formats.bin_limits import MAX_CUTS, Limits
from sparsesmith.formats.building.high_bits import HIGH_BITS
from sparsesmith.formats.format import NARROW_REACH, ParameterValue, has_too_many_slots
from sparsesmith.formats.row_bins import WARP, Bin, cut_bins, is_narrow, rows_of_bins

MOST_IN_FLIGHT = 16
"""Slots of a lane that are loaded together."""
GATHER_US = 0.02
"""What a warp takes to gather 32 scattered entries of x from the L2, however many loads are in flight."""
CUTS = (MAX_CUTS, 3, 1)
"""Bins at most. A single one keeps the order of the rows, and needs no row numbers."""
STEPS = (4, 8, 2, 1, 16)


@dataclass(frozen=True)
class _Cut:
    """Bins that a pattern may be cut into."""

    steps: int
    max_lanes: int
    bins: tuple[Bin, ...]
    is_narrow: bool
    """Whether 16-bit columns reach within every warp."""


def _cuts(work: Work) -> Iterator[_Cut]:
    pattern, counted = work.statistics.pattern, work.statistics.counted
    limits_of, seen, cut = Limits(counted), set(), set()
    narrowness = _Narrowness(work)
    for steps, most, max_lanes in product(STEPS, CUTS, (32, 128, 512)):
        if max_lanes > WARP and work.statistics.longest <= max_lanes // 2 * steps:
            continue
        limits = limits_of.best(steps, max_lanes, most)
        if (limits, steps, max_lanes) in cut:
            continue
        cut.add((limits, steps, max_lanes))
        bins = cut_bins(counted, limits, steps, max_lanes)
        if (steps, bins) in seen or has_too_many_slots(bins[-1].past_slot, pattern.nnz):
            continue
        seen.add((steps, bins))
        yield _Cut(steps, max_lanes, bins, narrowness.of(bins))


class _Narrowness:
    """Whether 16-bit columns reach within every warp; looking at all columns takes its time.

    Of bins with the same rows: more lanes a row put fewer rows, all of which shared a warp before, into one.
    """

    def __init__(self, work: Work) -> None:
        self._statistics = work.statistics
        self._always = work.statistics.narrow
        self._never = not self._always and work.statistics.has_far_reaching_row
        self._known: dict[tuple[int, ...], list[tuple[tuple[int, ...], bool]]] = {}
        self._rows: dict[tuple[int, ...], list[npt.NDArray[np.intp]]] = {}
        """Of the bins of the widths that were asked for last."""

    def of(self, bins: tuple[Bin, ...]) -> bool:
        if self._always or self._never:
            return self._always
        widths = tuple(bin_.width for bin_ in bins)
        known = self._known.setdefault(widths, [])
        lanes = tuple(bin_.lanes for bin_ in bins)
        for others, is_one in known:
            finer, coarser = (lanes, others) if is_one else (others, lanes)
            if all(fine >= coarse for fine, coarse in zip(finer, coarser, strict=True)):
                return is_one
        known.append((lanes, self._looked_at(bins, widths)))
        return known[-1][1]

    def _looked_at(self, bins: tuple[Bin, ...], widths: tuple[int, ...]) -> bool:
        pattern, band = self._statistics.pattern, self._statistics.band
        if len(bins) == 1 and bins[0].rows_per_warp + band <= NARROW_REACH["u16"]:
            return True
        if widths not in self._rows:
            self._rows = {widths: rows_of_bins(pattern, bins)}
        return is_narrow(pattern, bins, band, self._rows[widths])


def row_bins(work: Work) -> Iterator[Prospect]:
    blocks = (32, 64, 128) if work.nnz < 300_000 else (128, 64, 256)
    for cut in _cuts(work):
        widths = ",".join(str(bin_.width) for bin_ in reversed(cut.bins))
        warps = ",".join(str(bin_.past_warp) for bin_ in cut.bins)
        indices = _indices(work, cut)
        estimated_us = {index: _estimated_us(work, index, cut) for index in indices}
        for values in combine(
            widths=(widths,),
            warps=(warps,),
            steps=(cut.steps,),
            max_lanes=(cut.max_lanes,),
            block=(cut.max_lanes,) if cut.max_lanes > WARP else blocks,
            load=loads(work),
            index=indices,
        ):
            yield Prospect(estimated_us[values["index"]], values)


def _indices(work: Work, cut: _Cut) -> tuple[ParameterValue, ...]:
    """16 bits where they reach, else the fewest that reach all columns."""
    if cut.is_narrow or work.nnz < BYTES_COUNT_NNZ:
        return ("u16", "i32") if cut.is_narrow else ("i32",)
    num_cols = work.statistics.pattern.num_cols
    wide_enough = [index for index, bits in HIGH_BITS.items() if num_cols <= 2 ** (16 + bits)]
    return (*wide_enough[:1], "i32")


def _estimated_us(work: Work, index: ParameterValue, cut: _Cut) -> float:
    """Two dependent loads, and two more for each further batch of the longest row."""
    bins = cut.bins
    slots = bins[-1].past_slot
    batches = max(-(-bin_.steps // MOST_IN_FLIGHT) for bin_ in bins)
    chain = 1.1 + 2 * batches + 0.1 * bins[0].lanes.bit_length() + 0.03 * len(bins) + 0.4 * (bins[0].lanes > WARP)
    instructions = slots * 9 / WARP + bins[-1].past_warp * 40
    size = slots * (work.element_bytes + index_bytes(index)) + 4.0 * work.rows * (len(bins) > 1)
    us = estimate(work, size, instructions, chain, 32.0 * bins[-1].past_warp)
    gathers_in_a_row = max(bin_.steps for bin_ in bins)
    return us + GATHER_US * min(gathers_in_a_row, 4 * MOST_IN_FLIGHT)
