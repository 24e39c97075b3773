"""Prospects of the families over tiles."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparsesmith.families.estimates.cost import (
    L2_BYTES_A_US,
    Prospect,
    Work,
    estimate,
    index_bytes,
    loads,
    near,
)
from sparsesmith.families.estimates.statistics import PatternStatistics, remembered
from sparsesmith.formats.format import ParameterValue
from sparsesmith.matrix.pattern import Int32Array

Int64Array = npt.NDArray[np.int64]

LONG_ROW = 32
"""Times the lanes of a row: beyond, the warp sums the row."""
SAMPLED_TILES = 512
SAMPLED_SORTS = 16
SECTOR_BYTES = 32
SPARE = 2
"""Times that chunks of a sample must lie within the reach of 16 bits."""
GATHER_SHARE = 0.4
"""Of the time for sectors saved, what counts: the rest hides behind the matrix or hits L1."""
MOST_SAVED = 0.4
CAPACITIES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
ROWS = (1, 2, 4, 8)
MOST_ROWS = 4096
"""Of a tile that are looked at."""
SPLIT_CAPACITIES = (256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True, eq=False)
class _Sampled:
    """Tiles of some capacity, as if one began at each sampled row."""

    starts: Int64Array
    """First row of each."""
    begins: Int64Array
    """Nonzeros before it."""
    rows: Int64Array
    """Rows that it holds, one at least."""


@remembered
def _starts(statistics: PatternStatistics) -> tuple[Int64Array, Int64Array]:
    """Rows that tiles are sampled at, and nonzeros before them."""
    num_rows = statistics.pattern.num_rows
    starts = np.linspace(0, num_rows - 1, min(num_rows, SAMPLED_TILES)).astype(np.int64)
    return starts, statistics.pattern.row_offsets[starts].astype(np.int64)


@remembered
def _sampled(statistics: PatternStatistics, capacity: int) -> _Sampled:
    starts, begins = _starts(statistics)
    ends = statistics.pattern.rows_of(np.minimum(begins + capacity, statistics.pattern.nnz))
    return _Sampled(starts, begins, np.minimum(np.maximum(ends - starts, 1), MOST_ROWS))


@remembered
def needed_rows(statistics: PatternStatistics, capacity: int) -> int:
    """Rows that nine of ten tiles hold at most. Rows are sampled evenly, tiles hold many or few of them: each tile
    counts once."""
    rows = np.sort(_sampled(statistics, capacity).rows)
    weights = np.cumsum(1 / rows)
    quantile = np.searchsorted(weights, 0.9 * (1 / _sampled(statistics, capacity).rows).sum())
    return int(rows[min(quantile, rows.size - 1)])


def fill(statistics: PatternStatistics, capacity: int, max_rows: int) -> float:
    """Share of the slots that hold nonzeros, with at most `max_rows` rows a tile."""
    return _fill(statistics, capacity, min(max_rows, int(_sampled(statistics, capacity).rows.max())))


@remembered
def _fill(statistics: PatternStatistics, capacity: int, max_rows: int) -> float:
    pattern, sampled = statistics.pattern, _sampled(statistics, capacity)
    rows = np.minimum(sampled.rows, max_rows)
    nonzeros = pattern.row_offsets[np.minimum(sampled.starts + rows, pattern.num_rows)] - sampled.begins
    weights = 1 / rows
    share = float((np.minimum(nonzeros, capacity) * weights).sum() / (capacity * weights.sum()))
    return max(share, 1e-3)


@remembered
def sectors_saved(statistics: PatternStatistics, capacity: int, element_bytes: int) -> float:
    """Sectors of x for each nonzero that lanes need not read when a tile is sorted by column; from a sample."""
    whole = min(capacity, statistics.pattern.nnz) // 32 * 32
    if whole == 0:
        return 0.0
    elements = SECTOR_BYTES // element_bytes
    tiles, ordered = _tiles(statistics, whole)
    lanes = np.sort(tiles.reshape(-1, 32), axis=1) // elements
    return (_runs(lanes) - _runs((ordered // elements).reshape(-1, 32))) / tiles.size


@remembered
def _tiles(statistics: PatternStatistics, size: int) -> tuple[Int32Array, Int32Array]:
    """Columns of a sample of runs of so many nonzeros, as they are and each run sorted, shape [runs, nonzeros]."""
    starts = np.linspace(0, statistics.pattern.nnz - size, SAMPLED_SORTS).astype(np.int64)
    tiles = np.stack([statistics.pattern.col_indices[start : start + size] for start in starts.tolist()])
    return tiles, np.sort(tiles, axis=1)


def _runs(sectors: npt.NDArray[np.integer]) -> int:
    """Different sectors of each warp's read, added up."""
    return int(np.count_nonzero(sectors[:, 1:] != sectors[:, :-1])) + len(sectors)


@dataclass(frozen=True)
class _Tile:
    """What the estimate of a tile looks at, beside the width of its indices."""

    threads: int
    items: int
    lanes: int
    rows: int
    long: str
    launches: int
    sorts: bool


def _tiled_us(work: Work, tile: _Tile, index: str) -> float:
    """Two dependent loads, then shared memory. Computed once: families share tiles."""
    key = (_tiled_us, work.element_bytes, work.num_dense_cols, tile, index)
    us = work.statistics.answers.get(key)
    if not isinstance(us, float):
        us = work.statistics.answers[key] = _estimated_us(work, tile, index)
    return us


def _estimated_us(work: Work, tile: _Tile, index: str) -> float:
    threads, lanes, sorts = tile.threads, tile.lanes, tile.sorts
    capacity, max_rows = threads * tile.items, threads // lanes * tile.rows
    slots = work.nnz / fill(work.statistics, capacity, max_rows)
    tiles = slots / capacity
    size = slots * (work.element_bytes + index_bytes(index) + 2 * sorts) + tiles * (2 * max_rows + 10)
    longest = min(work.statistics.longest, capacity)
    serial = min(longest, LONG_ROW * lanes) / lanes + longest / 32 * (tile.long == "warp")
    chain = 3.2 + 0.07 * serial + 0.1 * tile.items + 0.15 * tile.rows + 0.1 * (threads > 32)
    instructions = slots * (12 + 2 * sorts) / 32 + tiles * threads * (30 + 12 * tile.rows) / 32
    us = estimate(work, size, instructions, chain, tiles * threads, tile.launches)
    if sorts:
        saved = SECTOR_BYTES * work.nnz * sectors_saved(work.statistics, capacity, work.element_bytes) / L2_BYTES_A_US
        us -= min(GATHER_SHARE * saved, MOST_SAVED * us)
    return float(us)


def _shapes(work: Work, capacities: tuple[int, ...], blocks: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Threads of a tile and items of a thread: those that give about one of the capacities."""
    for capacity in capacities:
        for items in (4, 8, 2, 16) if work.nnz < 1_000_000 else (8, 16, 4):
            if capacity // items in blocks:
                yield capacity // items, items


@remembered
def narrow_when_sorted(statistics: PatternStatistics, capacity: int, element_bytes: int) -> bool:
    """Whether 16 bits likely reach across the chunks of sorted tiles: on a sample, with room to spare.

    Full tiles and emptier ones are tried; a tile at a seam may still prove wider, and the layout is refused then.
    """
    pattern = statistics.pattern
    num_chunks = max(capacity // (32 * (16 // element_bytes)), 1)
    for nonzeros in (capacity, capacity // 4):
        size = min(nonzeros, pattern.nnz)
        _, tiles = _tiles(statistics, size)
        cuts = size * np.arange(num_chunks + 1) // num_chunks
        filled = np.diff(cuts) > 0
        reaches = tiles[:, cuts[1:][filled] - 1] - tiles[:, cuts[:-1][filled]]
        if reaches.max() >= 2**16 // SPARE:
            return False
    return True


class _Reading(NamedTuple):
    """How a tile is read: what the estimate does not look at, but for the width of its indices."""

    columns: str
    """Their `index`."""
    slower: float
    """Times the estimate."""
    parameters: dict[str, ParameterValue]


@cache
def _readings(
    loads: tuple[ParameterValue, ...], indices: tuple[str, ...], sequenced: str | None
) -> tuple[_Reading, ...]:
    """Every load with every index. `sequenced`: with rows as they are, and with the first load and this index in other
    sequences, which cost a little; None: nothing is said of sequences."""
    found = []
    for load, index in product(loads, indices):
        values: dict[str, ParameterValue] = {"load": load, "index": index}
        if sequenced is None:
            found.append(_Reading(index, 1.0, values))
            continue
        found.append(_Reading(index, 1.0, {**values, "sequence": "natural"}))
        if load == loads[0] and index == sequenced:
            found += [_Reading(index, 1.04, {**values, "sequence": other}) for other in ("length", "column")]
    return tuple(found)


def _choices(
    work: Work, threads: int, items: int, *, sorts: bool = False, launches: int = 1, in_sequences: bool = True
) -> Iterator[Prospect]:
    """Everything but how threads are grouped: lanes, rows, loads, indices."""
    statistics, capacity = work.statistics, threads * items
    needed = needed_rows(statistics, capacity)
    fits = statistics.narrow_row_blocks(capacity) or (
        sorts and narrow_when_sorted(statistics, capacity, work.element_bytes)
    )
    sequenced = ("u16" if statistics.narrow else "i32") if in_sequences else None
    readings = _readings(loads(work), ("u16", "i32") if fits else ("i32",), sequenced)
    width = min(items, 16 // work.element_bytes)
    for lanes in near(statistics.mean / 3, (1, 2, 4, 8, 16, 32), 2):
        rows = next((rows for rows in ROWS if rows * (threads // lanes) >= needed), ROWS[-1])
        long = "warp" if min(statistics.longest, capacity) > LONG_ROW * lanes else "lanes"
        tile = _Tile(threads, items, lanes, rows, long, launches, sorts)
        values: dict[str, ParameterValue] = {
            "lanes": lanes,
            "rows": rows,
            "long": long,
            "items": items,
            "vector": max(width, 2),
        }
        estimated_us = {index: _tiled_us(work, tile, index) for index in {each.columns for each in readings}}
        for each in readings:
            yield Prospect(estimated_us[each.columns] * each.slower, {**values, **each.parameters})


def _capacities(work: Work, count: int, *, sorts: bool = False) -> tuple[int, ...]:
    """Enough tiles to fill the device, long enough for the longest row; more repeated columns in larger sorted ones."""
    aim = min(max(work.nnz / 400, 128), 4096 if sorts else 2048)
    fitting = tuple(capacity for capacity in CAPACITIES if capacity >= work.statistics.longest)
    return near(aim, fitting, count)


def _block_tiles(work: Work, *, sorts: bool) -> Iterator[Prospect]:
    for block, items in _shapes(work, _capacities(work, 4, sorts=sorts), (32, 64, 128, 256, 512)):
        for estimated_us, values in _choices(work, block, items, sorts=sorts):
            yield Prospect(estimated_us, {**values, "block": block})


def tiles(work: Work) -> Iterator[Prospect]:
    yield from _block_tiles(work, sorts=False)


def tiles_sorted(work: Work) -> Iterator[Prospect]:
    yield from _block_tiles(work, sorts=True)


def warp_tiles(work: Work) -> Iterator[Prospect]:
    capacities = tuple(capacity for capacity in (128, 64, 256, 512) if capacity >= work.statistics.longest)
    for _, items in _shapes(work, capacities, (32,)):
        for estimated_us, values in _choices(work, 32, items):
            for block in (64, 128, 256):
                yield Prospect(estimated_us, {**values, "block": block})


def tiles_split(work: Work) -> Iterator[Prospect]:
    capacities = tuple(capacity for capacity in SPLIT_CAPACITIES if capacity < work.statistics.longest)
    for order in ("row", "column"):
        aim = min(max(work.nnz / 400, 256), 2048 if order == "row" else 8192)
        for block, items in _shapes(work, near(aim, capacities, 2), (64, 128, 256, 512)):
            sorts = order == "column"
            for estimated_us, values in _choices(work, block, items, sorts=sorts, launches=2, in_sequences=False):
                yield Prospect(estimated_us, {**values, "block": block, "order": order})
