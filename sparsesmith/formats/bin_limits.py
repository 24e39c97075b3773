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
    return Limits(counted).best(steps, max_lanes, most)


class Limits:
    """The best ones for rows of these lengths; what several choices share is computed once."""

    def __init__(self, counted: LengthCounts) -> None:
        self._candidates = _candidates(np.unique(np.maximum(counted.lengths, 1)))
        ends = np.searchsorted(counted.lengths, self._candidates, side="right")
        self._rows_up_to = np.concatenate([[0], np.cumsum(counted.num_rows)[ends - 1]])
        self._partitions: dict[tuple[int, int], _Partitions] = {}

    def best(self, steps: int, max_lanes: int, most: int) -> tuple[int, ...]:
        """See `best_limits`."""
        key = steps, max_lanes
        if key not in self._partitions:
            self._partitions[key] = _Partitions(_costs(self._candidates, self._rows_up_to, steps, max_lanes))
        return tuple(int(self._candidates[end]) for end in self._partitions[key].cheapest(most))


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
    lanes = np.array([lanes_of(width, steps, max_lanes) for width in candidates.tolist()])
    rows = rows_up_to[None, 1:] - rows_up_to[:-1, None]
    warps = -(-rows * lanes // WARP)
    costs = warps * (-(-candidates // lanes) * WARP + WARP_OVERHEAD_SLOTS) + BIN_OVERHEAD_SLOTS
    return np.where(np.tril(np.ones(rows.shape, bool), -1), np.inf, costs)


class _Partitions:
    """The cheapest ones into one bin, two, ..., of which an answer takes those that it may."""

    def __init__(self, costs: npt.NDArray[np.float64]) -> None:
        self._costs = costs
        self._best = costs[0].copy()
        """Of so many bins as there are totals, that end with each candidate."""
        self._starts = [np.zeros(costs.shape[0], np.int64)]
        self._totals = [self._best[-1]]

    def cheapest(self, most: int) -> list[int]:
        """Last candidates of the bins of the cheapest partition into at most `most` bins."""
        count = self._costs.shape[0]
        while len(self._totals) < min(most, count):
            with_one_more = np.concatenate([[np.inf], self._best[:-1]])[:, None] + self._costs
            self._starts.append(with_one_more.argmin(axis=0))
            self._best = with_one_more.min(axis=0)
            self._totals.append(self._best[-1])
        ends: list[int] = []
        end = count - 1
        for level in range(int(np.argmin(self._totals[:most])), -1, -1):
            ends.append(end)
            end = int(self._starts[level][end]) - 1
        return ends[::-1]
