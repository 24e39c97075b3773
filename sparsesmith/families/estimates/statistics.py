"""What proposing needs to know of a pattern: cheap, mostly lazy, exact where that costs nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt

from sparsesmith.families.axes import MAX_LITERAL_DIAGONALS
from sparsesmith.families.estimates.suitability import dia_suits, diagonals_at_least
from sparsesmith.formats.building.numbering import numbered_by
from sparsesmith.formats.building.windows import padding_in_windows
from sparsesmith.formats.dia import diagonals_of
from sparsesmith.formats.format import NARROW_REACH
from sparsesmith.formats.row_bins import LengthCounts, count_lengths
from sparsesmith.formats.sell import NO_ROW, sorted_rows
from sparsesmith.matrix.features import (
    NUM_WINDOWS,
    block_fill,
    distinct_diagonals,
    narrow_share_of_nonzeros,
    narrow_share_of_rows,
    sell_padding,
)
from sparsesmith.matrix.pattern import Int32Array, Pattern, pieces

SAMPLED_ROWS = 16
ROWS_A_SAMPLE = 16384
ROWS_IN_WINDOWS = 4096
"""Rows whose slots are put into windows of columns to see what padding that takes."""
SORTED_ROWS = 1024
"""Neighbouring rows of that sample, at least."""
LONGEST_ROW_IN_WINDOWS = 1024
REACHES_SAMPLED = 4096
"""Rows that are looked at before all are."""

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def remembered(
    statistic: Callable[Concatenate["PatternStatistics", Arguments], Answer],
) -> Callable[Concatenate["PatternStatistics", Arguments], Answer]:
    """Computes each answer once and keeps it with the pattern's statistics: `functools.cache` would keep all alive."""

    @wraps(statistic)
    def remembering(
        statistics: "PatternStatistics", /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Answer:
        key = (statistic, *arguments, *named.items())
        if key not in statistics.answers:
            statistics.answers[key] = statistic(statistics, *arguments, **named)
        return cast(Answer, statistics.answers[key])

    return remembering


@dataclass(frozen=True, eq=False)
class PatternStatistics:
    """Statistics of one pattern, computed when first asked for."""

    pattern: Pattern
    num_windows: int = NUM_WINDOWS
    """Of the sample that single nonzeros are looked at in."""
    answers: dict[tuple[object, ...], object] = field(default_factory=dict, init=False, repr=False)
    """Of `remembered` statistics, by statistic and arguments."""

    @cached_property
    def mean(self) -> float:
        """Nonzeros a row."""
        return self.pattern.nnz / self.pattern.num_rows

    @cached_property
    def counted(self) -> LengthCounts:
        return count_lengths(self.pattern.row_lengths)

    @cached_property
    def longest(self) -> int:
        return int(self.counted.lengths[-1])

    @cached_property
    def variation(self) -> float:
        """Standard deviation of the row lengths over their mean."""
        squares = self.counted.num_rows @ (self.counted.lengths - self.mean) ** 2
        return float(np.sqrt(squares / self.pattern.num_rows)) / self.mean

    @cached_property
    def ell_padding(self) -> float:
        return self.longest / self.mean

    @cached_property
    def diagonals(self) -> int:
        are_few = dia_suits(self.pattern) and diagonals_at_least(self.pattern) <= MAX_LITERAL_DIAGONALS
        return distinct_diagonals(self.pattern, diagonals_of(self.pattern).size if are_few else None)

    @cached_property
    def listed_diagonals(self) -> str:
        """Column minus row of every diagonal in use, ascending, with commas between: exact."""
        return ",".join(map(str, diagonals_of(self.pattern)))

    @property
    def dia_padding(self) -> float:
        return self.diagonals / self.mean

    @property
    def narrow(self) -> bool:
        """Whether 16-bit columns do for the whole matrix."""
        return self.pattern.num_cols <= 65536

    @cached_property
    def _spans(self) -> tuple[Int32Array, Int32Array]:
        return self.pattern.row_spans

    @cached_property
    def _sampled_lengths(self) -> npt.NDArray[np.int32]:
        lengths = self.pattern.row_lengths
        rows = ROWS_A_SAMPLE if self.num_windows >= NUM_WINDOWS else ROWS_A_SAMPLE // 4
        if lengths.size <= SAMPLED_ROWS * rows:
            return lengths
        starts = np.linspace(0, lengths.size - rows, SAMPLED_ROWS).astype(np.int64)
        return np.concatenate([lengths[start : start + rows] for start in starts.tolist()])

    @remembered
    def numbered(self, numbering: str) -> "PatternStatistics":
        """Of the pattern with rows and columns by other numbers; finding them takes its time."""
        return PatternStatistics(numbered_by(self.pattern, numbering)[0].pattern, self.num_windows)

    @remembered
    def sell_padding(self, lanes: int, sigma: int) -> float:
        """Slots a nonzero in SELL, at least 1."""
        return max(1.0, sell_padding(self._sampled_lengths, lanes, sigma))

    @remembered
    def narrow_slices(self, lanes: int, sigma: int) -> bool:
        """Whether 16-bit offsets reach within every slice: exact without sorting, safe with it."""
        if self.narrow:
            return True
        if sigma == 0 or self.has_far_reaching_row:
            return False
        if self.band + max(lanes, sigma) <= NARROW_REACH["u16"]:
            return True
        return narrow_share_of_rows(self._spans, max(lanes, sigma)) == 1.0

    @remembered
    def narrow_row_blocks(self, nnz_per_block: int) -> bool:
        """Whether 16-bit offsets reach within every row block (may say no where they just do)."""
        if self.narrow or self.has_far_reaching_row:
            return self.narrow
        shortest = int(self.pattern.row_lengths.min())
        if shortest and self.band + 2 * nnz_per_block // shortest + 2 <= NARROW_REACH["u16"]:
            return True
        return narrow_share_of_nonzeros(self._spans, self.pattern, nnz_per_block) == 1.0

    def rows_reach_within(self, columns: int) -> bool:
        """Whether no row spans more columns than these: exact, as `row_reach`, and often known without it."""
        if self._sampled_reach > columns:
            return False
        lowest, highest = self._outer_diagonals or (0, columns)
        return highest - lowest < columns or self.row_reach <= columns

    @property
    def row_reach(self) -> int:
        """Columns from the first to the last of a row, of the row that spans most: exact."""
        return self._extents[0]

    @property
    def has_far_reaching_row(self) -> bool:
        """Whether a row alone spans more columns than 16 bits reach: then no slice and no block of rows is narrow."""
        return not self.rows_reach_within(NARROW_REACH["u16"])

    @cached_property
    def _sampled_reach(self) -> int:
        """As `row_reach`, of some rows."""
        offsets = self.pattern.row_offsets
        rows = np.linspace(0, self.pattern.num_rows - 1, min(self.pattern.num_rows, REACHES_SAMPLED)).astype(np.int64)
        rows = rows[offsets[rows + 1] > offsets[rows]]
        columns = self.pattern.col_indices
        return int((columns[offsets[rows + 1] - 1] - columns[offsets[rows]]).max(initial=-1)) + 1

    @property
    def band(self) -> int:
        """Columns from the lowest to the highest diagonal in use: exact. Rows from a to b span at most b - a more."""
        if self._outer_diagonals is not None:
            lowest, highest = self._outer_diagonals
            return highest - lowest + 1
        return self._extents[1]

    @cached_property
    def _outer_diagonals(self) -> tuple[int, int] | None:
        """The lowest and the highest in use, where they are few: families list them all then, and no row need be looked
        at for its span. None: nobody lists them."""
        if not dia_suits(self.pattern) or self.diagonals > MAX_LITERAL_DIAGONALS:
            return None
        diagonals = diagonals_of(self.pattern)
        return int(diagonals[0]), int(diagonals[-1])

    @cached_property
    def _extents(self) -> tuple[int, int]:
        """`row_reach` and `band`, both in one pass over the rows."""
        reach, lowest, highest = 0, self.pattern.num_cols, -self.pattern.num_rows
        for piece in pieces(self.pattern.num_rows):
            first, last = (spans[piece] for spans in self._spans)
            rows = np.arange(piece.start, piece.stop, dtype=np.int32)
            held = last >= 0
            if not held.all():
                first, last, rows = first[held], last[held], rows[held]
            if rows.size:
                reach = max(reach, int((last - first).max()) + 1)
                lowest, highest = min(lowest, int((first - rows).min())), max(highest, int((last - rows).max()))
        return reach, highest - lowest + 1

    @remembered
    def reach_of_nonzeros(self, count: int) -> int:
        """Columns that so many nonzeros in CSR order span at most (may say more)."""
        columns, starts = self.pattern.col_indices, np.arange(0, self.pattern.nnz, count)
        first, last = np.minimum.reduceat(columns, starts), np.maximum.reduceat(columns, starts)
        if starts.size > 1:
            first, last = np.minimum(first[:-1], first[1:]), np.maximum(last[:-1], last[1:])
        return int((last - first).max()) + 1

    @remembered
    def window_padding(self, lanes: int, sigma: int, index: str) -> float:
        """Slots that SELL takes with `index` relative to the slot, for each that it takes otherwise: from a sample."""
        run = max(SORTED_ROWS, sigma or self.pattern.num_rows)
        if run > ROWS_A_SAMPLE or self.longest > LONGEST_ROW_IN_WINDOWS:
            return np.inf
        num_runs = -(-self.pattern.num_rows // run)
        chosen = np.unique(np.linspace(0, num_runs - 1, max(1, ROWS_IN_WINDOWS // run)).astype(np.int64))
        slices = np.concatenate([self._slices(int(number) * run, run, lanes, sigma) for number in chosen])
        return padding_in_windows(self.pattern, slices[:: -(-slices.size // ROWS_IN_WINDOWS)], index)

    def _slices(self, first: int, run: int, lanes: int, sigma: int) -> Int32Array:
        """Rows of each lane for a run of rows, shape [slices, lanes]."""
        lengths = self.pattern.row_lengths[first : first + run]
        rows = np.full(-(-lengths.size // lanes) * lanes, NO_ROW, np.int32)
        rows[: lengths.size] = first + sorted_rows(lengths, sigma)
        return rows.reshape(-1, lanes)

    @remembered
    def block_fill(self, rows: int, cols: int) -> float:
        """Filled share of aligned dense blocks."""
        return block_fill(self.pattern, rows, cols, self.num_windows)

    def block_shapes(self) -> list[tuple[int, int]]:
        """Dense block shapes worth trying: well filled, best first."""
        fills = {extent: self.block_fill(extent, extent) for extent in (2, 3, 4)}
        for small, large in ((3, 6), (4, 8)):
            if fills[small] > 0.6:
                fills[large] = self.block_fill(large, large)
        shapes = [((extent, extent), fill) for extent, fill in fills.items()]
        if fills[2] > 0.4:
            shapes += [
                ((2, 1), self.block_fill(2, 1)),
                ((1, 2), self.block_fill(1, 2)),
                ((4, 2), self.block_fill(4, 2)),
            ]
        useful = [(shape, fill + 0.02 * shape[0]) for shape, fill in shapes if fill > 0.45]
        return [shape for shape, _ in sorted(useful, key=lambda pair: -pair[1])]
