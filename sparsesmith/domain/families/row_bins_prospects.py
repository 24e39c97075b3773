"""Prospects of the families that gather rows by length: where to cut, and what each cut stores."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from sparsesmith.domain.families.prospects import (
    Prospect,
    Work,
    combine,
    estimate,
    index_bytes,
    loads,
    number,
)
from sparsesmith.domain.formats.row_bins import WARP, cut_bins, lanes_of, widest_warp
from sparsesmith.domain.pattern import Int32Array

MAX_CANDIDATES = 40
WARP_OVERHEAD_SLOTS = 48
"""What a warp costs beside its slots, in slots: its start, its row numbers, its shuffles."""
BIN_OVERHEAD_SLOTS = 256
MAX_CUTS = 6
FEW_CUTS = 3
STEPS = (4, 8, 2, 1, 16)


def best_limits(row_lengths: Int32Array, steps: int, most: int = MAX_CUTS) -> tuple[int, ...]:
    """Limits, at most `most`, that store the fewest slots (warps and bins count as slots too)."""
    lengths, counts = np.unique(np.maximum(row_lengths, 1), return_counts=True)
    candidates = _candidates(lengths)
    ends = np.searchsorted(lengths, candidates, side="right")
    rows_up_to = np.concatenate([[0], np.cumsum(counts)[ends - 1]])
    costs = _costs(candidates, rows_up_to, steps)
    return tuple(int(candidates[end]) for end in _cheapest_cuts(costs, most))


def _candidates(lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Row lengths where a bin may end: all, or about evenly spread by ratio, the longest always."""
    if lengths.size <= MAX_CANDIDATES:
        return lengths
    wanted = np.geomspace(lengths[0], lengths[-1], MAX_CANDIDATES)
    return np.unique(np.append(lengths[np.searchsorted(lengths, wanted[:-1])], lengths[-1]))


def _costs(candidates: npt.NDArray[np.int32], rows_up_to: npt.NDArray[np.int64], steps: int) -> npt.NDArray[np.float64]:
    """Slots of a bin that holds the lengths above candidate i - 1 up to candidate j, at [i, j]; infinite for i > j."""
    lanes = np.array([lanes_of(int(width), steps) for width in candidates])
    rows = rows_up_to[None, 1:] - rows_up_to[:-1, None]
    warps = -(-rows * lanes // WARP)
    costs = warps * (-(-candidates // lanes) * WARP + WARP_OVERHEAD_SLOTS) + BIN_OVERHEAD_SLOTS
    return np.where(np.tril(np.ones(rows.shape, bool), -1), np.inf, costs)


def _cheapest_cuts(costs: npt.NDArray[np.float64], most: int) -> list[int]:
    """Last candidates of the bins of the cheapest partition into at most `most` bins."""
    count = costs.shape[0]
    best = costs[0].copy()
    starts = [np.zeros(count, np.int64)]
    totals = [best[-1]]
    for _ in range(1, min(most, count)):
        with_one_more = np.concatenate([[np.inf], best[:-1]])[:, None] + costs
        starts.append(with_one_more.argmin(axis=0))
        best = with_one_more.min(axis=0)
        totals.append(best[-1])
    ends: list[int] = []
    end = count - 1
    for level in range(int(np.argmin(totals)), -1, -1):
        ends.append(end)
        end = int(starts[level][end]) - 1
    return ends[::-1]


def _row_bins(work: Work) -> Iterator[Prospect]:
    lengths = work.shape.pattern.row_lengths
    cuts = {
        (steps, most): cut_bins(lengths, best_limits(lengths, steps, most), steps)
        for steps in STEPS
        for most in (MAX_CUTS, FEW_CUTS)
    }
    blocks = (32, 64, 128) if work.nnz < 300_000 else (128, 64, 256)
    reach = {cut: 0 if work.shape.narrow else widest_warp(work.shape.pattern, bins) for cut, bins in cuts.items()}
    for values in combine(steps=STEPS, block=blocks, load=loads(work), index=("u16", "i32")):
        for most in (MAX_CUTS, FEW_CUTS):
            if values["index"] == "u16" and reach[number(values, "steps"), most] > 65536:
                continue
            bins = cuts[number(values, "steps"), most]
            slots = bins[-1].past_slot
            chain = 3.1 + sum(bin_.steps > 16 for bin_ in bins) + 0.1 * bins[0].lanes.bit_length() + 0.03 * len(bins)
            instructions = slots * 9 / WARP + bins[-1].past_warp * 40
            size = slots * (work.element_bytes + index_bytes(values["index"])) + 4.0 * work.rows
            listed = {
                "widths": ",".join(str(bin_.width) for bin_ in reversed(bins)),
                "warps": ",".join(str(bin_.past_warp) for bin_ in bins),
            }
            us = estimate(work, size, instructions, chain, 32.0 * bins[-1].past_warp)
            yield Prospect(us, {**listed, **values})


PROSPECTS: Mapping[str, Callable[[Work], Iterator[Prospect]]] = {"row_bins": _row_bins}
