"""Rows gathered by length into bins of one width: where a warp's slots lie follows from its number alone.

Within a bin a few neighbouring lanes share a row and the slots of a warp lie side by side, as in SELL; but a program
that knows the bins (they depend on the row lengths only) reads no offsets before it reads columns and values.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.building.high_bits import HIGH_BITS, high_bits_argument, high_bytes_of, with_high_bits
from sparsesmith.formats.building.lanes import Lanes
from sparsesmith.formats.building.numbering import COL_ORDER, NATURAL, NUMBERING, ORDERED_X, numbered_by
from sparsesmith.formats.format import (
    NARROW_REACH,
    Argument,
    Format,
    Layout,
    NumberList,
    OneOf,
    Parameters,
    ParameterSpec,
    index_type,
    narrow_columns,
    numbers,
    pattern_of_slots,
    refuse_overflow,
    refuse_padding,
    whole,
)
from sparsesmith.matrix.counts import how_often
from sparsesmith.matrix.pattern import Int32Array, Pattern, pieces

WARP = 32
NO_ROW = -1
MAX_BINS = 12
LONGEST_ROW = 2**24
COUNTED_DIRECTLY = 4
"""Lengths up to so many times the number of rows are looked up in a table of all lengths."""


@dataclass(frozen=True)
class Bin:
    """Rows of similar length, and where they lie."""

    width: int
    """Longest row."""
    lanes: int
    """Threads a row: a power of two."""
    first_warp: int
    num_warps: int
    first_row: int
    """Place of the bin's first row in `row_permutation`."""
    first_slot: int

    @property
    def steps(self) -> int:
        """Slots of a lane."""
        return -(-self.width // self.lanes)

    @property
    def rows_per_warp(self) -> int:
        """1 where a row has several warps."""
        return max(1, WARP // self.lanes)

    @property
    def warps_per_row(self) -> int:
        """1 where a warp has several rows."""
        return max(1, self.lanes // WARP)

    @property
    def past_warp(self) -> int:
        return self.first_warp + self.num_warps

    @property
    def past_row(self) -> int:
        return self.first_row + self.num_warps * WARP // self.lanes

    @property
    def past_slot(self) -> int:
        return self.first_slot + self.num_warps * self.steps * WARP


def lanes_of(width: int, steps: int, max_lanes: int) -> int:
    """Threads for a row of that width: the least power of two that leaves each `steps` slots, `max_lanes` at most."""
    lanes = 1
    while lanes < max_lanes and lanes * steps < width:
        lanes *= 2
    return lanes


def place_bins(widths: tuple[int, ...], warp_ends: tuple[int, ...], steps: int, max_lanes: int) -> tuple[Bin, ...]:
    """Bins in stored order, the widest first, from their widths (ascending) and the warps up to the end of each."""
    bins: list[Bin] = []
    for width, (first_warp, past_warp) in zip(reversed(widths), pairwise((0, *warp_ends)), strict=True):
        first_row, first_slot = (bins[-1].past_row, bins[-1].past_slot) if bins else (0, 0)
        lanes = lanes_of(width, steps, max_lanes)
        bins.append(Bin(width, lanes, first_warp, past_warp - first_warp, first_row, first_slot))
    return tuple(bins)


@dataclass(frozen=True, eq=False)
class LengthCounts:
    """How many rows have each length."""

    lengths: Int32Array
    """Different ones, ascending."""
    num_rows: npt.NDArray[np.int64]
    """Rows of each length, same shape."""


def count_lengths(row_lengths: Int32Array) -> LengthCounts:
    """What bins depend on."""
    longest = int(row_lengths.max())
    if longest > COUNTED_DIRECTLY * row_lengths.size:
        return LengthCounts(*np.unique(row_lengths, return_counts=True))
    rows_of_length = how_often(row_lengths)
    lengths = np.flatnonzero(rows_of_length)
    return LengthCounts(lengths.astype(np.int32), rows_of_length[lengths])


def cut_bins(counted: LengthCounts, limits: tuple[int, ...], steps: int, max_lanes: int) -> tuple[Bin, ...]:
    """The bins in use for rows of these lengths: a row goes to the first limit that is no less than its length."""
    place = np.searchsorted(limits, counted.lengths)
    widths: list[int] = []
    counts: list[int] = []
    for number in np.unique(place):
        held = place == number
        widths.append(max(1, int(counted.lengths[held][-1])))
        num_lanes = int(counted.num_rows[held].sum()) * lanes_of(widths[-1], steps, max_lanes)
        counts.append(-(-num_lanes // WARP))
    return place_bins(tuple(widths), tuple(np.cumsum(counts[::-1]).tolist()), steps, max_lanes)


@dataclass(frozen=True)
class RowBins(Format):
    name: str = "row_bins"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {
            "widths": NumberList(f"4,16,64,256,{LONGEST_ROW}", 1, LONGEST_ROW, MAX_BINS),
            "steps": OneOf(4, (1, 2, 4, 8, 16, 32)),
            "max_lanes": OneOf(32, (32, 64, 128, 256, 512, 1024)),
            "index": OneOf("i32", ("i32", "u16", *HIGH_BITS)),
            "numbering": NUMBERING,
        }

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        narrow, is_natural = parameters["index"] == "u16", parameters["numbering"] == NATURAL
        column = "column" if is_natural else "place in col_order"
        base = (
            Argument("const int*", "warp_col_base", "index", "smallest column of each warp's rows, length num_warps"),
        )
        return (
            Argument("int", "num_bins", "size", "bins with a row"),
            Argument("int", "num_warps", "size", "warps of all bins"),
            Argument(
                "const int*",
                "bins",
                "index",
                "first warp, lanes a row, first place in row_permutation and first slot of each bin, and where the "
                "last ends (lanes 0), length 4 * (num_bins + 1)",
            ),
            Argument(
                "const int*",
                "row_permutation",
                "index",
                "row of each place, -1 for none: a place for each `lanes` threads, in the order of bins and warps",
            ),
            *(() if is_natural else (COL_ORDER,)),
            *(base if narrow else ()),
            *((high_bits_argument(parameters["index"]),) if parameters["index"] in HIGH_BITS else ()),
            Argument(
                index_type(parameters),
                "col_indices",
                "index",
                f"{column} of each slot: thread t of the threads of a row has its nonzeros t, t + lanes, ...; slot k "
                "of lane l of a warp lies at (warp's first slot) + k * 32 + l; padding repeats the row's last column, "
                "the warp's smallest where there is no row or nonzero"
                + ("; minus warp_col_base" if narrow else "")
                + ("; modulo 65536" if parameters["index"] in HIGH_BITS else ""),
            ),
            Argument(
                "const T*", "values", "values", "value of each slot, in the order of col_indices; padding is zero"
            ),
            *(() if is_natural else (ORDERED_X,)),
        )

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        if parameters["numbering"] == NATURAL:
            return self._build(pattern, parameters)
        numbered, saved_ms = numbered_by(pattern, parameters["numbering"])
        layout = self._build(numbered.pattern, parameters)
        return numbered.with_ordered_x(numbered.with_users_rows(layout, "row_permutation", saved_ms=saved_ms))

    def _build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        """As the rows and columns are numbered."""
        bins = _checked_bins(pattern, parameters)
        narrow = parameters["index"] == "u16"
        if narrow:
            narrow_columns(np.concatenate([*_spans(pattern, bins)]), self.name, "columns of each warp")
        columns, value_sources = np.empty(bins[-1].past_slot, np.int32), np.empty(bins[-1].past_slot, np.int32)
        permutation = np.full(bins[-1].past_row, NO_ROW, np.int32)
        base = np.empty(bins[-1].past_warp, np.int32)
        for bin_, rows in _rows_of_bins(pattern, bins):
            places = permutation[bin_.first_row : bin_.past_row]
            places[: rows.size] = rows
            smallest = _smallest_columns(pattern, places, bin_)
            base[bin_.first_warp : bin_.past_warp] = smallest
            own = columns[bin_.first_slot : bin_.past_slot]
            _lanes(pattern, bin_, places, smallest).fill(pattern, own, value_sources[bin_.first_slot : bin_.past_slot])
            if narrow:
                own.reshape(bin_.num_warps, -1)[:] -= smallest[:, None]
        indices: dict[str, npt.NDArray[np.generic]] = {"bins": described_bins(bins), "row_permutation": permutation}
        if narrow:
            indices["warp_col_base"] = base
        if parameters["index"] in HIGH_BITS:
            indices["high_bits"] = high_bytes_of(columns, _steps(bins), parameters["index"])
        indices["col_indices"] = columns if parameters["index"] == "i32" else columns.astype(np.uint16)
        return Layout(
            sizes={"num_bins": len(bins), "num_warps": bins[-1].past_warp},
            indices=indices,
            value_sources=value_sources,
            num_slots=columns.size,
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        described = layout.indices["bins"].astype(np.int64).reshape(-1, 4)
        columns = layout.indices["col_indices"].astype(np.int32)
        if parameters["index"] in HIGH_BITS:
            warps, slots_of_bins = np.diff(described[:, 0]), np.diff(described[:, 3])
            steps = np.repeat(slots_of_bins // np.maximum(warps, 1) // WARP, warps)
            columns = with_high_bits(columns, layout.indices["high_bits"].astype(np.uint8), steps, parameters["index"])
        slot_rows: list[npt.NDArray[np.int32]] = []
        for (first_warp, lanes, first_row, first_slot), after in pairwise(described):
            num_warps, slots = after[0] - first_warp, slice(first_slot, after[3])
            shape = (num_warps, -1, max(1, WARP // lanes), min(WARP, lanes))
            rows = np.repeat(layout.indices["row_permutation"][first_row : after[2]], max(1, lanes // WARP))
            own = columns[slots].reshape(shape)
            slot_rows.append(np.broadcast_to(rows.astype(np.int32).reshape(num_warps, 1, -1, 1), own.shape).reshape(-1))
            if parameters["index"] == "u16":
                base = layout.indices["warp_col_base"][first_warp : after[0]].astype(np.int32)
                own += base[:, None, None, None]
        if parameters["numbering"] != NATURAL:
            columns = layout.indices[COL_ORDER.name].astype(np.int32)[columns]
        return pattern_of_slots(num_rows, num_cols, np.concatenate(slot_rows), columns, layout)


def _steps(bins: tuple[Bin, ...]) -> npt.NDArray[np.int64]:
    """Slots of a lane of each warp."""
    return np.repeat([bin_.steps for bin_ in bins], [bin_.num_warps for bin_ in bins])


def bins_that_hold(counted: LengthCounts, limits: tuple[int, ...], steps: int, max_lanes: int) -> tuple[Bin, ...]:
    """See cut_bins. Raises InvalidProgram where a row is longer than the last limit."""
    check_longest(int(counted.lengths[-1]), limits)
    return cut_bins(counted, limits, steps, max_lanes)


def check_longest(longest: int, limits: tuple[int, ...]) -> None:
    """Raises InvalidProgram where a row is longer than the last limit."""
    if longest > limits[-1]:
        raise InvalidProgram(
            f"format row_bins: the longest row has {longest} nonzeros, the last width is {limits[-1]}",
            field="widths",
            value=longest,
            limit=limits[-1],
        )


def _checked_bins(pattern: Pattern, parameters: Parameters) -> tuple[Bin, ...]:
    counted, limits = count_lengths(pattern.row_lengths), numbers(str(parameters["widths"]))
    bins = bins_that_hold(counted, limits, whole(parameters, "steps"), whole(parameters, "max_lanes"))
    check_bins(bins, pattern.nnz)
    return bins


def check_bins(bins: tuple[Bin, ...], nnz: int) -> None:
    """Raises InvalidProgram for bins that are mostly padding, or hold more places than an index counts."""
    refuse_padding("row_bins", bins[-1].past_slot, nnz)
    refuse_overflow("row_bins", "places of rows", bins[-1].past_row)


def described_bins(bins: tuple[Bin, ...]) -> npt.NDArray[np.int32]:
    """The array `bins`."""
    rows = [(bin_.first_warp, bin_.lanes, bin_.first_row, bin_.first_slot) for bin_ in bins]
    rows.append((bins[-1].past_warp, 0, bins[-1].past_row, bins[-1].past_slot))
    return np.array(rows, np.int32).reshape(-1)


def _rows_of_bins(pattern: Pattern, bins: tuple[Bin, ...]) -> Iterator[tuple[Bin, npt.NDArray[np.intp]]]:
    """Each bin with its rows in the pattern's order."""
    if len(bins) == 1:
        yield bins[0], np.arange(pattern.num_rows)
        return
    places = _places(pattern.row_lengths, [bin_.width for bin_ in reversed(bins)])
    for number, bin_ in enumerate(bins):
        yield bin_, np.flatnonzero(places == len(bins) - 1 - number)


def _places(row_lengths: Int32Array, widths: list[int]) -> npt.NDArray[np.uint8]:
    """The first of some ascending widths, MAX_BINS at most, that is no less than each row's length: as many as are
    less."""
    places = np.zeros(row_lengths.size, np.uint8)
    for rows in pieces(row_lengths.size):
        for width in widths[:-1]:
            places[rows] += row_lengths[rows] > width
    return places


def is_narrow(
    pattern: Pattern,
    bins: tuple[Bin, ...],
    band: int | None = None,
    rows_of_bins: Sequence[npt.NDArray[np.intp]] | None = None,
) -> bool:
    """Whether 16-bit columns reach within every warp: bin by bin, as the long rows of the first often say no.

    `band`: columns from the lowest to the highest diagonal, where that is known: rows that lie close need not be looked
    at one by one then. `rows_of_bins`: see the function of this name.
    """
    held = _rows_of_bins(pattern, bins) if rows_of_bins is None else zip(bins, rows_of_bins, strict=True)
    return all(
        (band is not None and _rows_between(rows, bin_) + band <= NARROW_REACH["u16"])
        or int(_spans_of_bin(pattern, bin_, rows).max()) < NARROW_REACH["u16"]
        for bin_, rows in held
    )


def rows_of_bins(pattern: Pattern, bins: tuple[Bin, ...]) -> list[npt.NDArray[np.intp]]:
    """Of each bin, in the pattern's order; the same for all bins of the same widths."""
    return [rows for _, rows in _rows_of_bins(pattern, bins)]


def _rows_between(rows: npt.NDArray[np.intp], bin_: Bin) -> int:
    """From the first to the last row of a warp, at most."""
    count = bin_.rows_per_warp
    if rows.size == rows[-1] - rows[0] + 1:  # All rows from the first to the last.
        return min(count, rows.size) - 1
    lasts = np.append(rows[count - 1 :: count], rows[-1:] if rows.size % count else rows[:0])
    return int((lasts - rows[::count]).max())


def _spans(pattern: Pattern, bins: tuple[Bin, ...]) -> Iterator[Int32Array]:
    """Largest less smallest column of each warp, for each bin."""
    for bin_, rows in _rows_of_bins(pattern, bins):
        yield _spans_of_bin(pattern, bin_, rows)


def _spans_of_bin(pattern: Pattern, bin_: Bin, rows: npt.NDArray[np.intp]) -> Int32Array:
    first, last = pattern.spans_of(rows)
    count = bin_.num_warps // bin_.warps_per_row * bin_.rows_per_warp
    smallest, largest = np.full(count, np.iinfo(np.int32).max, np.int32), np.full(count, -1, np.int32)
    smallest[: rows.size], largest[: rows.size] = first, last
    past = largest.reshape(-1, bin_.rows_per_warp).max(axis=1)
    begin = np.minimum(smallest.reshape(-1, bin_.rows_per_warp).min(axis=1), past)
    return np.repeat(past - begin, bin_.warps_per_row)


def _lanes(pattern: Pattern, bin_: Bin, places: Int32Array, smallest: Int32Array) -> Lanes:
    """Threads of a bin's warps, from the row of each place and the smallest column of each warp."""
    has_row = places != NO_ROW
    first, past = np.zeros(places.size, np.int32), np.zeros(places.size, np.int32)
    first[has_row] = pattern.row_offsets[places[has_row]]
    past[has_row] = pattern.row_offsets[places[has_row] + 1]
    empty = first == past
    threads = np.arange(bin_.lanes, dtype=np.int32)
    shape = (bin_.num_warps, WARP)
    return Lanes(
        (first[:, None] + threads).reshape(shape),
        np.repeat(past, bin_.lanes).reshape(shape),
        np.repeat(empty, bin_.lanes).reshape(shape),
        np.full(bin_.num_warps, bin_.steps),
        smallest,
        stride=bin_.lanes,
    )


def _smallest_columns(pattern: Pattern, places: Int32Array, bin_: Bin) -> Int32Array:
    """Smallest column of the rows of each warp of a bin, 0 for one without nonzeros."""
    none = np.iinfo(np.int32).max
    held = (places != NO_ROW) & (pattern.row_lengths[places] > 0)
    firsts = np.full(places.size, none, np.int32)
    firsts[held] = pattern.col_indices[pattern.row_offsets[places[held]]]
    smallest = np.repeat(firsts.reshape(-1, bin_.rows_per_warp).min(axis=1), bin_.warps_per_row)
    return np.where(smallest == none, 0, smallest).astype(np.int32)
