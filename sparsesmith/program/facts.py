"""Facts that a kernel program may name instead of a number: what only the matrix, its stored form or the device knows.

Each is found once for a pattern and kept as long as the pattern lives. Text models cannot compute them, and a number
that is nearly right computes nothing right.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.bin_limits import best_limits
from sparsesmith.formats.building.high_bits import HIGH_BITS, slots_a_byte
from sparsesmith.formats.dia import diagonals_of
from sparsesmith.formats.format import Format, Parameters, numbers, whole
from sparsesmith.formats.row_bins import (
    LONGEST_ROW,
    MAX_BINS,
    WARP,
    Bin,
    LengthCounts,
    RowBins,
    bins_that_hold,
    count_lengths,
)
from sparsesmith.matrix.pattern import Pattern

QUANTILES = (10, 25, 50, 75, 90, 99)
MAX_TABLE = 1024
"""Numbers in a table at most."""

Value = int | tuple[int, ...]
"""A number, or a table."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class PatternFacts:
    """Of one pattern, found when first asked for."""

    pattern: Pattern
    answers: dict[Hashable, object] = field(default_factory=dict, init=False, repr=False)

    def remembered(self, key: Hashable, find: Callable[[], Answer]) -> Answer:
        if key not in self.answers:
            self.answers[key] = find()
        return cast(Answer, self.answers[key])

    @cached_property
    def counted(self) -> LengthCounts:
        return count_lengths(self.pattern.row_lengths)

    @cached_property
    def diagonals(self) -> tuple[int, ...]:
        return tuple(diagonals_of(self.pattern).tolist())

    @cached_property
    def longest_col(self) -> int:
        return int(np.bincount(self.pattern.col_indices).max())

    @cached_property
    def reach(self) -> int:
        return max(abs(self.diagonals[0]), abs(self.diagonals[-1]))

    def row_length(self, percent: int) -> int:
        """The length that so many per cent of the rows do not exceed; exact."""
        up_to = np.cumsum(self.counted.num_rows)
        place = np.searchsorted(up_to, -(-self.pattern.num_rows * percent // 100))
        return int(self.counted.lengths[place])

    def bins(self, limits: tuple[int, ...], steps: int, max_lanes: int) -> tuple[Bin, ...]:
        """As `row_bins` cuts them. Raises InvalidProgram where a row is longer than the last limit."""
        key = ("bins", limits, steps, max_lanes)
        return self.remembered(key, lambda: bins_that_hold(self.counted, limits, steps, max_lanes))

    def cut(self, steps: int, max_lanes: int, most: int) -> tuple[int, ...]:
        """The longest row of each of at most `most` bins, ascending, where few slots are stored."""
        limits = self.remembered(
            ("cut", steps, max_lanes, most), lambda: best_limits(self.counted, steps, max_lanes, most)
        )
        return tuple(bin_.width for bin_ in reversed(self.bins(limits, steps, max_lanes)))


_FACTS: WeakKeyDictionary[Pattern, PatternFacts] = WeakKeyDictionary()


def facts_of(pattern: Pattern) -> PatternFacts:
    """One for each pattern that is alive."""
    if (known := _FACTS.get(pattern)) is None:
        known = _FACTS[pattern] = PatternFacts(pattern)
    return known


@dataclass(frozen=True)
class Circumstances:
    """What a program is bound to: a problem and a device."""

    pattern: Pattern | None
    """None: a task without a matrix."""
    num_dense_cols: int
    num_sms: int
    """Multiprocessors of the device."""
    axes: Mapping[str, int] = field(default_factory=dict)
    """Other sizes of the problem, which programs may name as facts."""


@dataclass(frozen=True)
class StoredForm:
    """The form in which the matrix is stored: the program's `format` line."""

    format: Format
    parameters: Parameters


Of = Literal["matrix", "problem", "format row_bins", "device"]


@dataclass(frozen=True)
class Asked:
    """A question for a fact."""

    circumstances: Circumstances
    stored: Callable[[], StoredForm]
    """Reads the format line; raises InvalidProgram where that still holds a name."""

    @property
    def matrix(self) -> PatternFacts:
        """Raises InvalidProgram where there is none."""
        if self.circumstances.pattern is None:
            axes = ", ".join(self.circumstances.axes)
            raise InvalidProgram(
                f"this task has no matrix to know facts of, its axes are {axes}", field="let", limit=axes
            )
        return facts_of(self.circumstances.pattern)

    @property
    def bins(self) -> tuple[Bin, ...]:
        """Of the format line, in stored order."""
        parameters = self._row_bins().parameters
        return self.matrix.bins(
            numbers(str(parameters["widths"])), whole(parameters, "steps"), whole(parameters, "max_lanes")
        )

    @property
    def high_bytes(self) -> tuple[int, ...]:
        """Where a warp of each bin finds its high bits; the first warp's number is taken off beforehand."""
        index = str(self._row_bins().parameters["index"])
        if index not in HIGH_BITS:
            raise InvalidProgram(
                f"bins have high bytes with index={' or '.join(map(str, HIGH_BITS))}, not {index}",
                field="index",
                value=index,
                limit=", ".join(map(str, HIGH_BITS)),
            )
        return high_bytes(self.bins, index)

    def _row_bins(self) -> StoredForm:
        stored = self.stored()
        if stored.format.name != RowBins.name:
            raise InvalidProgram(
                f"bins are facts of format row_bins, not of {stored.format.name}",
                field="format",
                value=stored.format.name,
                limit="row_bins",
            )
        return stored


def high_bytes(bins: tuple[Bin, ...], index: str) -> tuple[int, ...]:
    """Where a warp of each bin finds its high bits; the first warp's number is taken off beforehand."""
    slots, found, past = slots_a_byte(index), [], 0
    for bin_ in bins:
        warp_bytes = -(-bin_.steps // slots) * WARP
        found.append(past - bin_.first_warp * warp_bytes)
        past += bin_.num_warps * warp_bytes
    return tuple(found)


@dataclass(frozen=True)
class Fact:
    """A number or a table that programs may name."""

    meaning: str
    unit: str
    of: Of
    find: Callable[[Asked], Value]
    """Raises InvalidProgram where there is none."""


def _matrix(meaning: str, unit: str, find: Callable[[PatternFacts], Value]) -> Fact:
    return Fact(meaning, unit, "matrix", lambda asked: find(asked.matrix))


def _bins(meaning: str, unit: str, find: Callable[[Bin], int]) -> Fact:
    return Fact(f"of each bin: {meaning}", unit, "format row_bins", lambda asked: tuple(map(find, asked.bins)))


def _row_length(percent: int) -> Fact:
    meaning = f"length that {percent} % of the rows do not exceed"
    return _matrix(meaning, "nonzeros", lambda facts: facts.row_length(percent))


FACTS: Mapping[str, Fact] = {
    "num_rows": _matrix("rows of A", "rows", lambda facts: facts.pattern.num_rows),
    "num_cols": _matrix("columns of A", "columns", lambda facts: facts.pattern.num_cols),
    "nnz": _matrix("nonzeros of A", "nonzeros", lambda facts: facts.pattern.nnz),
    "row_length_max": _matrix("length of the longest row", "nonzeros", lambda facts: facts.row_length(100)),
    "row_length_min": _matrix("length of the shortest row", "nonzeros", lambda facts: int(facts.counted.lengths[0])),
    "row_length_mean": _matrix(
        "mean length of a row, rounded up", "nonzeros", lambda facts: -(-facts.pattern.nnz // facts.pattern.num_rows)
    ),
    **{f"row_length_q{percent}": _row_length(percent) for percent in QUANTILES},
    "empty_rows": _matrix(
        "rows without a nonzero", "rows", lambda facts: int((facts.pattern.row_lengths == 0).sum())
    ),
    "col_length_max": _matrix("length of the longest column", "nonzeros", lambda facts: facts.longest_col),
    "diagonals": _matrix("table: column minus row of every diagonal", "columns", lambda facts: facts.diagonals),
    "num_diagonals": _matrix("diagonals with a nonzero", "diagonals", lambda facts: len(facts.diagonals)),
    "diagonal_min": _matrix("the first of `diagonals`", "columns", lambda facts: facts.diagonals[0]),
    "diagonal_max": _matrix("the last of `diagonals`", "columns", lambda facts: facts.diagonals[-1]),
    "bandwidth": _matrix("largest distance of a nonzero from the diagonal", "columns", lambda facts: facts.reach),
    "num_dense_cols": Fact(
        "columns of the dense operand, 1 for spmv", "columns", "problem",
        lambda asked: asked.circumstances.num_dense_cols,
    ),
    "num_bins": Fact("bins with a row", "bins", "format row_bins", lambda asked: len(asked.bins)),
    "num_warps": Fact("warps of all bins", "warps", "format row_bins", lambda asked: asked.bins[-1].past_warp),
    "wide_warps": Fact(
        "warps of the bins whose rows have several warps: the first ones", "warps", "format row_bins",
        lambda asked: max((bin_.past_warp for bin_ in asked.bins if bin_.lanes > WARP), default=0),
    ),
    "most_steps": Fact(
        "slots of a lane, in the bin where they are most", "slots", "format row_bins",
        lambda asked: max(bin_.steps for bin_ in asked.bins),
    ),
    "bin_width": _bins("longest row", "nonzeros", lambda bin_: bin_.width),
    "bin_lanes": _bins("threads of a row, a power of two", "threads", lambda bin_: bin_.lanes),
    "bin_shift": _bins("binary logarithm of `bin_lanes`", "1", lambda bin_: bin_.lanes.bit_length() - 1),
    "bin_steps": _bins("slots of a lane", "slots", lambda bin_: bin_.steps),
    "bin_rows": _bins(
        "places for rows, filled up to whole warps", "places", lambda bin_: bin_.num_warps * WARP // bin_.lanes
    ),
    "bin_warps": _bins("warps", "warps", lambda bin_: bin_.num_warps),
    "bin_first_warp": _bins("first warp", "warps", lambda bin_: bin_.first_warp),
    "bin_past_warp": _bins("the warp after the last", "warps", lambda bin_: bin_.past_warp),
    "bin_place": _bins(
        "place in row_permutation of the first row, less that of the warps before: add warp\\*32/lanes",
        "places", lambda bin_: bin_.first_row - bin_.first_warp * WARP // bin_.lanes,
    ),
    "bin_slot": _bins(
        "first slot, less that of the warps before: add warp\\*steps\\*32",
        "slots", lambda bin_: bin_.first_slot - bin_.first_warp * bin_.steps * WARP,
    ),
    "bin_high_byte": Fact(
        "of each bin (index=u18, u20): first byte of high bits, less that of the warps before", "bytes",
        "format row_bins", lambda asked: asked.high_bytes,
    ),
    "num_sms": Fact("multiprocessors", "multiprocessors", "device", lambda asked: asked.circumstances.num_sms),
}  # fmt: skip
"""By name. `meaning` begins with `table` or `of each bin` where the fact is a table."""


@dataclass(frozen=True)
class Formula:
    """A table that depends on numbers of the program's own."""

    arguments: Mapping[str, tuple[int, int]]
    """Least and largest of each, in order."""
    meaning: str
    unit: str
    of: Of
    find: Callable[[PatternFacts, tuple[int, ...]], tuple[int, ...]]


FORMULAS: Mapping[str, Formula] = {
    "cut_widths": Formula(
        {"steps": (1, 32), "max_lanes": (1, 1024), "most": (1, MAX_BINS)},
        f"limits of at most `most` bins of format row_bins that store few slots, the longest row each; up to "
        f"{LONGEST_ROW}",
        "nonzeros",
        "matrix",
        lambda facts, given: facts.cut(*given),
    ),
}

TABLES: Mapping[str, str] = {"bins": "bin_"}
"""What `pick` chooses from: the facts that begin so are its columns, `..past_warp` is what it is searched by."""
