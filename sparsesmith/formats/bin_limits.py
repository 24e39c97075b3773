"""Where the rows of a matrix are best cut into bins of `row_bins`, by a formula that was measured to be good."""

import numpy as np
import numpy.typing as npt

from sparsesmith.formats.row_bins import WARP, LengthCounts, lanes_of

MAX_CANDIDATES = 40
WARP_OVERHEAD_SLOTS = 48
"""What a warp costs beside its slots, in slots: its start, its row numbers, its shuffles."""
BIN_OVERHEAD_SLOTS = 256
MAX_CUTS = 6


def best_limits(counted: LengthCounts, steps: int, max_lanes: int, most: int = MAX_CUTS) -> tuple[int, ...]:
    """Limits, at most `most`, that store the fewest slots (warps and bins count as slots too)."""
    lengths = np.unique(np.maximum(counted.lengths, 1))
    candidates = _candidates(lengths)
    ends = np.searchsorted(counted.lengths, candidates, side="right")
    rows_up_to = np.concatenate([[0], np.cumsum(counted.num_rows)[ends - 1]])
    costs = _costs(candidates, rows_up_to, steps, max_lanes)
    return tuple(int(candidates[end]) for end in _cheapest_cuts(costs, most))


def _candidates(lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Row lengths where a bin may end: all, or about evenly spread by ratio, the longest always."""
    if lengths.size <= MAX_CANDIDATES:
        return lengths
    wanted = np.geomspace(lengths[0], lengths[-1], MAX_CANDIDATES)
    return np.unique(np.append(lengths[np.searchsorted(lengths, wanted[:-1])], lengths[-1]))


def _costs(
    candidates: npt.NDArray[np.int32], rows_up_to: npt.NDArray[np.int64], steps: int, max_lanes: int
) -> npt.NDArray[np.float64]:
    """Slots of a bin that holds the lengths above candidate i - 1 up to candidate j, at [i, j]; infinite for i > j."""
    lanes = np.array([lanes_of(int(width), steps, max_lanes) for width in candidates])
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
