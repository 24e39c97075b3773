"""Structural features of a pattern: what an expert looks at before choosing a format and a kernel.

Row lengths are looked at in full. What concerns single nonzeros is measured on windows of consecutive nonzeros, spread
evenly over the matrix, so that the cost stays bounded and local structure survives the sampling.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.matrix.counts import how_often
from sparsesmith.matrix.pattern import Int32Array, Pattern

NUM_WINDOWS = 64
WINDOW_NNZ = 4096
PROBES_A_WINDOW = 1024
WINDOW_ROWS = 4096
"""Neighbouring rows whose lengths are looked at, of a window, where not all are."""
COUNTED_COLUMNS = 1_000_000
"""Nonzeros whose columns are counted, at least, and less than twice as many."""
SPREAD_BLOCK_ROWS = 16
LONGEST_ROW_BIN = 13
"""Row-length bins: 0, 1, 2, 3-4, 5-8, ... , above 2048."""
SECTOR_BYTES = 32
WARP = 32
L2_BYTES = 60e6
MAX_INT32 = 2**31 - 1
OUTSIDE = -1
"""No block."""
NEAR_DIAGONALS = (1, 16, 256, 4096)
TOP_DIAGONALS = (1, 4, 16, 64)
BLOCK_EXTENTS = (2, 3, 4)
SELL_SIGMAS = (1, 256, 0)
QUANTILES = (0.1, 0.5, 0.9, 0.99)

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """Windows of consecutive nonzeros."""

    begins: Int32Array
    """Place of each window's first nonzero, shape [windows]."""
    rows: Int32Array
    """Shape [windows, nonzeros of a window]."""
    cols: Int32Array
    """Shape [windows, nonzeros of a window]."""
    most_probes: int = NUM_WINDOWS * PROBES_A_WINDOW
    """Nonzeros whose neighbours are searched for in other rows."""

    def probes(self) -> tuple[IntArray, IntArray]:
        """Rows and columns of some of them, evenly."""
        stride = max(1, self.rows.size // self.most_probes)
        rows, cols = self.rows.reshape(-1)[::stride], self.cols.reshape(-1)[::stride]
        return rows.astype(np.int64), cols.astype(np.int64)


def structural_features(pattern: Pattern, num_windows: int = NUM_WINDOWS) -> npt.NDArray[np.float32]:
    """Features in the order of FEATURE_NAMES, shape [NUM_FEATURES], scaled to about -1 to 3.

    `num_windows`: of the sample; fewer take less time and tell less.
    """
    return np.array(list(_features(pattern, num_windows).values()), np.float32)


def ell_padding(pattern: Pattern) -> float:
    """Slots a nonzero that ELL would store."""
    return float(pattern.row_lengths.max()) * pattern.num_rows / pattern.nnz


def sell_padding(row_lengths: npt.NDArray[np.int32], lanes: int, sigma: int) -> float:
    """Slots a nonzero that SELL with these lanes and sorting windows would store."""
    num_rows = row_lengths.size
    window = num_rows if sigma == 0 or sigma >= num_rows else sigma
    if lanes % window == 0:  # Whole windows lie in each slice: their order within does not matter.
        longest = _padded(row_lengths, lanes, 0).max(axis=1)
    else:
        in_windows = np.sort(_padded(row_lengths, window, 0), axis=1)[:, ::-1]
        # The first of each slice, where no slice crosses a window's end.
        is_whole = window % lanes == 0 or len(in_windows) == 1
        longest = in_windows[:, ::lanes] if is_whole else _padded(in_windows.reshape(-1), lanes, 0).max(axis=1)
    return float(longest.sum(dtype=np.int64) * lanes) / max(1, int(row_lengths.sum(dtype=np.int64)))


def distinct_diagonals(pattern: Pattern, in_use: int | None = None) -> int:
    """Diagonals (col - row) seen in the sample: a lower bound that is exact for up to NUM_WINDOWS * WINDOW_NNZ
    nonzeros. `in_use`: how many there are, if that is known; where one window shows as many, no other is looked at."""
    if in_use is not None and _are_seen(pattern, in_use):
        return in_use
    sample = sample_windows(pattern)
    return _num_different(np.sort(sample.cols - sample.rows, axis=None))


def _are_seen(pattern: Pattern, in_use: int) -> bool:
    """Whether the sample, or a window from its middle, shows so many diagonals."""
    if pattern.nnz <= NUM_WINDOWS * WINDOW_NNZ:
        return True
    begin = int(_begins(pattern, NUM_WINDOWS)[NUM_WINDOWS // 2])
    window = slice(begin, begin + WINDOW_NNZ)
    diagonals = pattern.col_indices[window] - pattern.rows_of_run(window.start, window.stop)
    return _num_different(np.sort(diagonals)) == in_use


_FILLS: WeakKeyDictionary[Pattern, dict[tuple[int, int, int], float]] = WeakKeyDictionary()
"""Of patterns that are alive: features and families ask for the same ones."""
_SAMPLES: WeakKeyDictionary[Pattern, "dict[int, Sample]"] = WeakKeyDictionary()
"""Likewise, by windows."""


def block_fill(pattern: Pattern, rows: int, cols: int, num_windows: int = NUM_WINDOWS) -> float:
    """Filled share of the aligned rows x cols blocks that hold a nonzero, on the sample (cut blocks are left out)."""
    known = _FILLS.setdefault(pattern, {})
    if (rows, cols, num_windows) not in known:
        known[rows, cols, num_windows] = _block_fill(pattern, rows, cols, num_windows)
    return known[rows, cols, num_windows]


def _block_fill(pattern: Pattern, rows: int, cols: int, num_windows: int) -> float:
    nonzeros, blocks = _in_whole_rows_of_blocks(pattern, rows, cols, num_windows)
    if nonzeros == 0:
        # Where rows are so long that no window holds a whole row of blocks: of single ones, spread evenly.
        for run in _spread_rows_of_blocks(pattern, rows, num_windows):
            in_order = np.sort(run // np.int32(cols))
            nonzeros, blocks = nonzeros + run.size, blocks + _num_different(in_order)
    return nonzeros / (blocks * rows * cols) if nonzeros else 0.0


def _in_whole_rows_of_blocks(pattern: Pattern, height: int, width: int, num_windows: int) -> tuple[int, int]:
    """Nonzeros of the rows of blocks that lie in a window of the sample as a whole, and blocks that hold them."""
    sample = sample_windows(pattern, num_windows)
    firsts = -(-np.searchsorted(pattern.row_offsets, sample.begins) // height) * height
    lasts = pattern.rows_of(sample.begins + np.int32(sample.rows.shape[1])) // height * height
    lasts = np.maximum(firsts, lasts)
    begins = pattern.row_offsets[np.minimum(firsts, pattern.num_rows)] - sample.begins
    ends = np.where(firsts < lasts, pattern.row_offsets[lasts.clip(max=pattern.num_rows)] - sample.begins, begins)
    nonzeros = int((ends - begins).sum())
    if nonzeros == 0:
        return 0, 0
    per_row = pattern.num_cols // width + 1
    fits = (int((lasts - firsts).max()) // height + 1) * per_row <= MAX_INT32
    keys = (sample.rows - firsts[:, None].astype(np.int32)) // np.int32(height)
    keys = (keys if fits else keys.astype(np.int64)) * per_row + sample.cols // np.int32(width)
    for window, begin, end in zip(keys, begins.tolist(), ends.tolist(), strict=True):
        window[:begin] = OUTSIDE
        window[end:] = OUTSIDE
    keys.sort(axis=1)
    is_first = keys[:, 1:] != keys[:, :-1]
    # Where any nonzero is outside, the first difference is from there to a block.
    return nonzeros, int(np.count_nonzero(is_first)) + int(np.count_nonzero(keys[:, 0] != OUTSIDE))


def pattern_symmetry(pattern: Pattern) -> float | None:
    """Share of sampled nonzeros (i, j) with (j, i) stored; None for a rectangular matrix."""
    is_square = pattern.num_rows == pattern.num_cols
    return _symmetry(pattern, sample_windows(pattern)) if is_square else None


def narrow_share_of_rows(spans: tuple[Int32Array, Int32Array], rows: int) -> float:
    """Share of the runs of `rows` rows whose columns lie within 65536. `spans`: `Pattern.row_spans`."""
    starts = np.arange(0, spans[0].size, rows)
    first, last = np.minimum.reduceat(spans[0], starts), np.maximum.reduceat(spans[1], starts)
    return _share((last < 0) | (last - np.minimum(first, last) < 65536))


def narrow_share_of_nonzeros(spans: tuple[Int32Array, Int32Array], pattern: Pattern, nnz_per_block: int) -> float:
    """A lower bound on the share of row blocks of about `nnz_per_block` nonzeros whose columns lie within 65536."""
    starts = _first_rows(pattern, nnz_per_block)
    first, last = np.minimum.reduceat(spans[0], starts), np.maximum.reduceat(spans[1], starts)
    first, last = np.minimum(first[:-1], first[1:]), np.maximum(last[:-1], last[1:])
    if first.size == 0:
        return narrow_share_of_rows(spans, spans[0].size)
    return _share((last < 0) | (last - np.minimum(first, last) < 65536))


def _first_rows(pattern: Pattern, nnz_per_block: int) -> IntArray:
    """Of each run of rows that begin within the same `nnz_per_block` nonzeros."""
    begins = np.arange(0, pattern.nnz + 1, nnz_per_block).astype(np.int32)
    starts = np.searchsorted(pattern.row_offsets[:-1], begins)
    return np.unique(starts[starts < pattern.num_rows])


def sample_windows(pattern: Pattern, num_windows: int = NUM_WINDOWS) -> Sample:
    """Up to `num_windows` windows of WINDOW_NNZ nonzeros; the whole pattern where that is all of it or less."""
    known = _SAMPLES.setdefault(pattern, {})
    if num_windows not in known:
        known[num_windows] = _sampled(pattern, num_windows)
    return known[num_windows]


def _sampled(pattern: Pattern, num_windows: int) -> Sample:
    size, begins = pattern.nnz, np.zeros(1, np.int32)
    if pattern.nnz > num_windows * WINDOW_NNZ:
        size, begins = WINDOW_NNZ, _begins(pattern, num_windows)
    rows = np.stack(list(pattern.rows_of_runs(begins, size)))
    cols = np.stack([pattern.col_indices[begin : begin + size] for begin in begins.tolist()])
    return Sample(begins, rows, cols, num_windows * PROBES_A_WINDOW)


def _begins(pattern: Pattern, num_windows: int) -> Int32Array:
    """Place of each window's first nonzero."""
    return np.linspace(0, pattern.nnz - WINDOW_NNZ, num_windows).astype(np.int32)


def _features(pattern: Pattern, num_windows: int) -> Mapping[str, float]:
    lengths = pattern.row_lengths if num_windows >= NUM_WINDOWS else _in_windows(pattern.row_lengths, num_windows)
    sample = sample_windows(pattern, num_windows)
    return {
        **_sizes(pattern),
        **_row_lengths(lengths, float(pattern.row_lengths.max())),
        **_columns(pattern),
        **_diagonals(pattern, sample),
        **_locality(pattern, sample, num_windows),
        **_formats(pattern, lengths, num_windows),
    }


def _in_windows(lengths: npt.NDArray[np.int32], num_windows: int) -> npt.NDArray[np.int32]:
    """Lengths of rows in windows of neighbours, where there are more rows than these hold."""
    if lengths.size <= num_windows * WINDOW_ROWS:
        return lengths
    starts = np.linspace(0, lengths.size - WINDOW_ROWS, num_windows).astype(np.int64)
    seen = np.concatenate([lengths[start : start + WINDOW_ROWS] for start in starts.tolist()])
    return seen if seen.any() else lengths  # Where only other rows hold anything.


def _sizes(pattern: Pattern) -> dict[str, float]:
    csr_bytes = 8.0 * pattern.nnz + 4.0 * pattern.num_rows
    return {
        "log_rows": np.log2(pattern.num_rows) / 8,
        "log_cols": np.log2(pattern.num_cols) / 8,
        "log_nnz": np.log2(pattern.nnz) / 8,
        "log_aspect": np.clip(np.log2(pattern.num_rows / pattern.num_cols) / 4, -3, 3),
        "log_density": np.log10(pattern.nnz / pattern.num_rows / pattern.num_cols) / 4,
        "log_csr_over_l2": np.clip(np.log2(csr_bytes / L2_BYTES) / 4, -3, 3),
        "log_x_over_l1": np.clip(np.log2(4.0 * pattern.num_cols / 200e3) / 4, -3, 3),
    }


def _row_lengths(lengths: npt.NDArray[np.int32], longest: float) -> dict[str, float]:
    ascending = np.sort(lengths)
    ends = np.append(np.flatnonzero(ascending[1:] != ascending[:-1]), ascending.size - 1)
    different, num_rows = ascending[ends].astype(np.int64), np.diff(ends, prepend=-1)
    total = int(different @ num_rows)
    mean = total / lengths.size
    bins = np.ceil(np.log2(np.maximum(different, 1))).astype(np.int64) + (different > 0)
    histogram = np.bincount(np.minimum(bins, LONGEST_ROW_BIN), num_rows, LONGEST_ROW_BIN + 1) / lengths.size
    deviation = float(np.sqrt(num_rows @ (different - mean) ** 2 / lengths.size))
    features = {f"row_length_bin_{index}": float(share) for index, share in enumerate(histogram)}
    features["log_row_mean"] = np.log2(mean + 1) / 4
    features["log_row_max"] = np.log2(longest + 1) / 4
    features["log_row_max_over_mean"] = np.log2(longest / mean) / 4
    features["row_cv"] = np.log2(1 + deviation / mean)
    features["row_gini"] = _gini(different, num_rows)
    features["empty_rows"] = float(histogram[0])
    features |= {f"log_row_q{int(100 * q)}": np.log2(_quantile(ascending, q) + 1) / 4 for q in QUANTILES}
    features["share_of_longest_percent"] = int(ascending[lengths.size - -(-lengths.size // 100) :].sum()) / total
    features["tail_slope"] = _tail_slope(ascending)
    steps = np.abs(np.diff(lengths))
    features["row_length_change"] = float(steps.mean()) / mean if steps.size else 0.0
    features["row_length_change"] = float(np.log2(1 + features["row_length_change"]))
    return features


def _columns(pattern: Pattern) -> dict[str, float]:
    stride = max(1, pattern.nnz // COUNTED_COLUMNS)
    counts = _counted(pattern.col_indices[::stride], pattern.num_cols)
    columns_of_count = how_often(counts)
    return {
        "log_col_max_over_mean": np.log2((columns_of_count.size - 1) / (counts.sum() / counts.size)) / 4,
        "col_gini": _gini(np.arange(columns_of_count.size), columns_of_count),
        "empty_cols": float(columns_of_count[0] / counts.size),
    }


@cache
def _ones() -> Int32Array:
    """Kept: to have that much memory anew takes as long as counting."""
    return np.ones(2 * COUNTED_COLUMNS, np.int32)


def _counted(cols: Int32Array, num_cols: int) -> Int32Array:
    """How often each column is there: as a product, which unlike `numpy.bincount` needs no indices of 64 bits."""
    offsets, ones = np.array([0, cols.size], np.int32), _ones()[: cols.size]
    counted: Int32Array = scipy.sparse.csc_matrix((ones, cols, offsets), (num_cols, 1), copy=False) @ ones[:1]
    return counted


def _diagonals(pattern: Pattern, sample: Sample) -> dict[str, float]:
    offsets = sample.cols - sample.rows
    is_square = pattern.num_rows == pattern.num_cols
    distance = np.abs(offsets if is_square else sample.cols - sample.rows * (pattern.num_cols / pattern.num_rows))
    counts = _counts(offsets)
    shares = _largest(counts, max(TOP_DIAGONALS)).cumsum() / offsets.size
    features = {f"within_{near}_of_diagonal": _share(distance <= near) for near in NEAR_DIAGONALS}
    features["mean_distance"] = float(distance.mean() / pattern.num_cols)
    features["max_distance"] = float(distance.max() / pattern.num_cols)
    features["log_diagonals"] = float(np.log2(counts.size) / 4)
    features |= {f"top_{top}_diagonals": float(shares[min(top, counts.size) - 1]) for top in TOP_DIAGONALS}
    dia_slots = counts.size * pattern.num_rows / pattern.nnz
    features["log_dia_padding"] = float(np.clip(np.log2(max(dia_slots, 1)) / 4, 0, 3))
    features["upper_share"] = _share(offsets > 0)
    features["symmetry"] = _symmetry(pattern, sample)
    return features


def _locality(pattern: Pattern, sample: Sample, num_windows: int) -> dict[str, float]:
    gaps = np.diff(sample.cols, axis=1)[sample.rows[:, 1:] == sample.rows[:, :-1]]
    gaps = gaps if gaps.size else np.array([pattern.num_cols])
    shared, shifted = _shared_with_next_row(pattern, sample)
    features = {
        "adjacent_columns": _share(gaps == 1),
        "columns_within_8": _share(gaps <= 8),
        "columns_within_64": _share(gaps <= 64),
        "log_mean_gap": float(np.log2(gaps.mean()) / 8),
        "log_median_gap": float(np.log2(_median(gaps)) / 8),
        "sectors_per_warp": _sectors_per_warp(sample.cols),
        "sectors_per_warp_of_rows": _sectors_per_warp_of_rows(pattern),
        "shared_with_next_row": shared,
        "shifted_into_next_row": shifted,
    }
    for extent in BLOCK_EXTENTS:
        features[f"block_fill_{extent}"] = block_fill(pattern, extent, extent, num_windows)
    return features


def _formats(pattern: Pattern, lengths: npt.NDArray[np.int32], num_windows: int) -> dict[str, float]:
    features = {"log_ell_padding": float(np.clip(np.log2(ell_padding(pattern)) / 4, 0, 3))}
    for sigma in SELL_SIGMAS:
        padding = sell_padding(lengths, WARP, sigma)
        features[f"log_sell_padding_{sigma}"] = float(np.clip(np.log2(max(padding, 1)), 0, 3))
    features["narrow_columns"] = float(pattern.num_cols <= 65536)
    # Where 16 bits reach all columns, any rows are narrow.
    parts = [] if features["narrow_columns"] else list(_parts(pattern, num_windows))
    shares = [_narrow_shares(part) for part in parts]
    features["narrow_slices"] = _mean_share([of_slices for of_slices, _ in shares])
    features["narrow_row_blocks"] = _mean_share([of_row_blocks for _, of_row_blocks in shares])
    return features


def _narrow_shares(pattern: Pattern) -> tuple[float, float]:
    """Of slices and of row blocks."""
    first, last = pattern.row_spans
    if int(last.max()) - int(first.min()) < 65536:
        return 1.0, 1.0
    return narrow_share_of_rows((first, last), WARP), narrow_share_of_nonzeros((first, last), pattern, 1024)


def _parts(pattern: Pattern, num_windows: int) -> Iterator[Pattern]:
    """The pattern; with fewer windows than usual, windows of its rows that hold anything, where it has more rows."""
    if num_windows >= NUM_WINDOWS or pattern.num_rows <= num_windows * WINDOW_ROWS:
        yield pattern
        return
    for start in np.linspace(0, pattern.num_rows - WINDOW_ROWS, num_windows).astype(np.int64).tolist():
        offsets = pattern.row_offsets[start : start + WINDOW_ROWS + 1]
        columns = pattern.col_indices[offsets[0] : offsets[-1]]
        if columns.size:
            yield Pattern(WINDOW_ROWS, pattern.num_cols, offsets - offsets[0], columns)


def _mean_share(shares: Sequence[float]) -> float:
    """All narrow where there is none: rows without nonzeros reach nowhere."""
    return float(np.mean(shares)) if shares else 1.0


def _share(holds: npt.NDArray[np.bool_]) -> float:
    """As `numpy.mean`."""
    return int(np.count_nonzero(holds)) / holds.size


def _quantile(ascending: npt.NDArray[np.int32], share: float) -> float:
    """As `numpy.quantile`, of what is sorted."""
    place = share * (ascending.size - 1)
    below = int(place)
    low, high, part = int(ascending[below]), int(ascending[min(below + 1, ascending.size - 1)]), place - below
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


def _median(numbers: npt.NDArray[np.int32]) -> float:
    """As `numpy.median`, of positive whole numbers."""
    upper = numbers.size // 2
    if np.count_nonzero(numbers == 1) > upper:  # Selecting takes long among equal ones.
        return 1.0
    ordered = np.partition(numbers, upper)
    return float(ordered[upper] if numbers.size % 2 else (int(ordered[:upper].max()) + int(ordered[upper])) / 2)


def _largest(counts: IntArray, most: int) -> IntArray:
    """At most so many, the largest first."""
    several = counts[counts > 1]
    ones = np.ones(min(counts.size - several.size, most), np.int64)
    return np.append(np.sort(several.astype(np.int32))[::-1], ones)[:most]


def _num_different(ordered: npt.NDArray[np.integer]) -> int:
    """Numbers of an ascending list that is not empty."""
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))


def _counts(numbers: npt.NDArray[np.int32]) -> IntArray:
    """How often each number is there, the least number first."""
    ordered = np.sort(numbers, axis=None)
    ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), ordered.size - 1)
    return np.diff(ends, prepend=-1)


def _gini(different: IntArray, counts: IntArray) -> float:
    """Gini coefficient of whole numbers, from the different ones, ascending, and how many there are of each: 0 for
    equal shares, towards 1 where few hold all."""
    size, total = int(counts.sum()), int(counts @ different)
    past = counts.cumsum()
    places = counts * (2 * past - counts + 1) / 2  # The sum of the places 1..size of each.
    weighted = float((places * different).sum())
    return float(1 + 1 / size - 2 * (total * (size + 1) - weighted) / (size * total))


def _tail_slope(ascending: npt.NDArray[np.int32]) -> float:
    """Slope of log rank over log length of the longer rows, 0 to 3: near 1 or 2 for power laws, 3 for no tail."""
    top = ascending[-max(2, ascending.size // 10) :][::-1].astype(np.float64)
    top = top[top > 0]
    spread = np.log(top[0] / top[-1]) if top.size else 0.0
    if spread < 1e-9:
        return 3.0
    ranks = np.log(np.arange(1, top.size + 1))
    slope = np.polyfit(np.log(top), ranks, 1)[0]
    return float(np.clip(-slope, 0, 3))


def _symmetry(pattern: Pattern, sample: Sample) -> float:
    """Share of sampled nonzeros (i, j) with (j, i) stored; 0 for a rectangular matrix."""
    if pattern.num_rows != pattern.num_cols:
        return 0.0
    rows, cols = sample.probes()
    return _share(_stored(pattern, cols, rows))


def _stored(pattern: Pattern, rows: IntArray, cols: IntArray) -> npt.NDArray[np.bool_]:
    """Whether (row, col) is a nonzero."""
    return _holds(pattern, _places(pattern, rows, cols), rows, cols)


def _holds(pattern: Pattern, places: Int32Array, rows: IntArray, cols: IntArray) -> npt.NDArray[np.bool_]:
    """Whether at a place, from its row's first on, lies that nonzero."""
    lies_there: npt.NDArray[np.bool_] = pattern.col_indices.take(places, mode="clip") == cols
    lies_there &= places < pattern.row_offsets.take(rows + 1)
    return lies_there


def _places(pattern: Pattern, rows: IntArray, cols: IntArray) -> Int32Array:
    """Of the first nonzero of each row that lies at the column or behind it: a binary search inside each row, all rows
    at once."""
    columns, low, past = pattern.col_indices, pattern.row_offsets.take(rows), pattern.row_offsets.take(rows + 1)
    wanted = cols.astype(np.int32)
    longest = int((past - low).max()) if rows.size else 0
    if pattern.nnz + longest > MAX_INT32:
        low, past = low.astype(np.int64), past.astype(np.int64)
    for step in (1 << power for power in reversed(range(longest.bit_length()))):
        reached = low + low.dtype.type(step - 1)
        moves = columns.take(reached, mode="clip") < wanted
        moves &= reached < past
        low += low.dtype.type(step) * moves
    return low


def _shared_with_next_row(pattern: Pattern, sample: Sample) -> tuple[float, float]:
    """Shares of sampled nonzeros (i, j) with (i + 1, j) stored, and with (i + 1, j + 1)."""
    rows, cols = sample.probes()
    has_next = rows + 1 < pattern.num_rows
    below, cols = rows[has_next] + 1, cols[has_next]
    places = _places(pattern, below, cols)
    shared = _holds(pattern, places, below, cols)
    shifted = _holds(pattern, places + shared, below, cols + 1)
    return float(shared.sum() / rows.size), float(shifted.sum() / rows.size)


def _sectors_per_warp(cols: Int32Array) -> float:
    """Distinct 32-byte sectors of a float32 x that 32 consecutive nonzeros touch, over 32."""
    in_order = cols.reshape(-1)
    sectors = _padded(in_order, WARP, int(in_order[-1])) // (SECTOR_BYTES // 4)
    return _mean_distinct(sectors)


def _sectors_per_warp_of_rows(pattern: Pattern) -> float:
    """Distinct sectors that the middle nonzeros of 32 consecutive rows touch, over 32: how SELL gathers x."""
    starts = np.linspace(0, max(0, pattern.num_rows - WARP), 256).astype(np.int64)
    rows = np.minimum(starts[:, None] + np.arange(WARP), pattern.num_rows - 1)
    middle = (pattern.row_offsets[rows].astype(np.int64) + pattern.row_offsets[rows + 1]) // 2
    return _mean_distinct(pattern.col_indices[np.minimum(middle, pattern.nnz - 1)] // (SECTOR_BYTES // 4))


def _mean_distinct(groups: npt.NDArray[np.integer]) -> float:
    ordered = np.sort(groups, axis=1)
    changes = int(np.count_nonzero(ordered[:, 1:] != ordered[:, :-1]))
    return (len(groups) + changes) / len(groups) / int(groups.shape[1])


def _padded(array: npt.NDArray[np.integer], width: int, filler: int) -> npt.NDArray[np.integer]:
    """Rows of `width` entries, the last one filled up."""
    missing = -array.size % width
    if missing:
        array = np.concatenate([array, np.full(missing, filler, array.dtype)])
    return array.reshape(-1, width)


def _spread_rows_of_blocks(pattern: Pattern, height: int, num_windows: int) -> Iterator[Int32Array]:
    """Columns of up to SPREAD_BLOCK_ROWS of them, with no more nonzeros than all windows hold."""
    num_block_rows = pattern.num_rows // height
    left = num_windows * WINDOW_NNZ
    for number in np.linspace(0, num_block_rows - 1, min(num_block_rows, SPREAD_BLOCK_ROWS)).astype(np.int64):
        first = int(number) * height
        begin, end = int(pattern.row_offsets[first]), int(pattern.row_offsets[first + height])
        if end - begin <= left:
            left -= end - begin
            yield pattern.col_indices[begin:end]


def _smallest_pattern() -> Pattern:
    return Pattern(1, 1, np.array([0, 1], np.int32), np.array([0], np.int32))


FEATURE_NAMES: tuple[str, ...] = tuple(_features(_smallest_pattern(), NUM_WINDOWS))
"""Names in the order of `structural_features`."""

NUM_FEATURES = len(FEATURE_NAMES)
