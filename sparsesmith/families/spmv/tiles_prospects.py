"""Prospects of the families over tiles."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.families.estimates.cost import (
    L2_BYTES_A_US,
    Prospect,
    Values,
    Work,
    combine,
    estimate,
    index_bytes,
    loads,
    near,
    number,
)
from sparsesmith.families.estimates.statistics import PatternStatistics, remembered
from sparsesmith.formats.format import ParameterValue
from sparsesmith.matrix.pattern import Int32Array

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
SPLIT_CAPACITIES = (256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True)
class Packing:
    """How tiles of some capacity come out: sampled, as if a tile began at each sampled row."""

    needed_rows: int
    """Rows that nine of ten tiles hold at most."""
    fill: float
    """Share of the slots that hold nonzeros, with at most `max_rows` rows a tile."""


@remembered
def packing(statistics: PatternStatistics, capacity: int, max_rows: int = 4096) -> Packing:
    pattern = statistics.pattern
    offsets, num_rows = pattern.row_offsets, pattern.num_rows
    starts = np.linspace(0, num_rows - 1, min(num_rows, SAMPLED_TILES)).astype(np.int64)
    begins = offsets[starts].astype(np.int64)
    ends = pattern.rows_of(np.minimum(begins + capacity, pattern.nnz))
    rows = np.clip(ends - starts, 1, max_rows)
    nonzeros = offsets[np.minimum(starts + rows, num_rows)] - begins
    # Rows are sampled evenly, tiles hold many or few of them: each tile counts once.
    weights = 1 / rows
    order = np.argsort(rows)
    quantile = np.searchsorted(np.cumsum(weights[order]), 0.9 * weights.sum())
    fill = float((np.minimum(nonzeros, capacity) * weights).sum() / (capacity * weights.sum()))
    return Packing(int(rows[order][min(quantile, rows.size - 1)]), max(fill, 1e-3))


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
    tiles = statistics.pattern.col_indices[starts[:, None] + np.arange(size)]
    return tiles, np.sort(tiles, axis=1)


def _runs(sectors: npt.NDArray[np.integer]) -> int:
    """Different sectors of each warp's read, added up."""
    return int(np.count_nonzero(np.diff(sectors, axis=1))) + len(sectors)


def _tiled(
    work: Work, values: dict[str, ParameterValue], threads: int, *, launches: int = 1, sorts: bool = False
) -> Prospect:
    """As `_tiled_us`, with what it does not look at: loads, and the sequence of rows, which costs a little. `values`
    become the prospect's."""
    looked_at = values["items"], values["lanes"], values["rows"], values["long"], values["index"]
    key = (_tiled, work.element_bytes, work.num_dense_cols, threads, launches, sorts, looked_at)
    us = work.statistics.answers.get(key)
    if not isinstance(us, float):
        us = work.statistics.answers[key] = _tiled_us(work, values, threads, launches=launches, sorts=sorts)
    penalty = 1.0 if values.get("sequence", "natural") == "natural" else 1.04
    return Prospect(us * penalty, values)


def _tiled_us(work: Work, values: Values, threads: int, *, launches: int, sorts: bool) -> float:
    """Two dependent loads, then shared memory."""
    items, lanes = number(values, "items"), number(values, "lanes")
    capacity, max_rows = threads * items, threads // lanes * number(values, "rows")
    slots = work.nnz / packing(work.statistics, capacity, max_rows).fill
    tiles = slots / capacity
    size = slots * (work.element_bytes + index_bytes(values["index"]) + 2 * sorts) + tiles * (2 * max_rows + 10)
    longest = min(work.statistics.longest, capacity)
    serial = min(longest, LONG_ROW * lanes) / lanes + longest / 32 * (values["long"] == "warp")
    chain = 3.2 + 0.07 * serial + 0.1 * items + 0.15 * number(values, "rows") + 0.1 * (threads > 32)
    instructions = slots * (12 + 2 * sorts) / 32 + tiles * threads * (30 + 12 * number(values, "rows")) / 32
    us = estimate(work, size, instructions, chain, tiles * threads, launches)
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


def _choices(work: Work, threads: int, items: int, *, sorts: bool = False) -> Iterator[dict[str, ParameterValue]]:
    """Everything but how threads are grouped: lanes, rows, loads, indices."""
    statistics, capacity = work.statistics, threads * items
    needed = packing(statistics, capacity).needed_rows
    fits = statistics.narrow_row_blocks(capacity) or (
        sorts and narrow_when_sorted(statistics, capacity, work.element_bytes)
    )
    narrow = ("u16", "i32") if fits else ("i32",)
    width = min(items, 16 // work.element_bytes)
    for lanes in near(statistics.mean / 3, (1, 2, 4, 8, 16, 32), 2):
        rows = next((rows for rows in ROWS if rows * (threads // lanes) >= needed), ROWS[-1])
        long = "warp" if min(statistics.longest, capacity) > LONG_ROW * lanes else "lanes"
        for values in combine(load=loads(work), index=narrow):
            yield {"lanes": lanes, "rows": rows, "long": long, "items": items, "vector": max(width, 2), **values}


def _sequenced(work: Work, choices: Iterator[dict[str, ParameterValue]]) -> Iterator[dict[str, ParameterValue]]:
    """Each choice with rows as they are, and some with rows in another sequence."""
    first_load, narrow = loads(work)[0], work.statistics.narrow
    for values in choices:
        yield {**values, "sequence": "natural"}
        if values["load"] == first_load and (values["index"] == "u16") == narrow:
            for sequence in ("length", "column"):
                yield {**values, "sequence": sequence}


def _capacities(work: Work, count: int, *, sorts: bool = False) -> tuple[int, ...]:
    """Enough tiles to fill the device, long enough for the longest row; more repeated columns in larger sorted ones."""
    aim = min(max(work.nnz / 400, 128), 4096 if sorts else 2048)
    fitting = tuple(capacity for capacity in CAPACITIES if capacity >= work.statistics.longest)
    return near(aim, fitting, count)


def _block_tiles(work: Work, *, sorts: bool) -> Iterator[Prospect]:
    for block, items in _shapes(work, _capacities(work, 4, sorts=sorts), (32, 64, 128, 256, 512)):
        for values in _sequenced(work, _choices(work, block, items, sorts=sorts)):
            yield _tiled(work, {**values, "block": block}, block, sorts=sorts)


def tiles(work: Work) -> Iterator[Prospect]:
    yield from _block_tiles(work, sorts=False)


def tiles_sorted(work: Work) -> Iterator[Prospect]:
    yield from _block_tiles(work, sorts=True)


def warp_tiles(work: Work) -> Iterator[Prospect]:
    capacities = tuple(capacity for capacity in (128, 64, 256, 512) if capacity >= work.statistics.longest)
    for _, items in _shapes(work, capacities, (32,)):
        for values in _sequenced(work, _choices(work, 32, items)):
            for block in (64, 128, 256):
                yield _tiled(work, {**values, "block": block}, 32)


def tiles_split(work: Work) -> Iterator[Prospect]:
    capacities = tuple(capacity for capacity in SPLIT_CAPACITIES if capacity < work.statistics.longest)
    for order in ("row", "column"):
        aim = min(max(work.nnz / 400, 256), 2048 if order == "row" else 8192)
        for block, items in _shapes(work, near(aim, capacities, 2), (64, 128, 256, 512)):
            for values in _choices(work, block, items, sorts=order == "column"):
                chosen = {**values, "block": block, "order": order}
                yield _tiled(work, chosen, block, launches=2, sorts=order == "column")
