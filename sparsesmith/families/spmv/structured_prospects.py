"""What is worth trying of diagonals and of dense blocks."""

from collections.abc import Iterator
from math import ceil

from sparsesmith.families.estimates.cost import (
    Prospect,
    Values,
    Work,
    combine,
    estimate,
    loads,
    near,
    number,
)

BATCHES = (2, 3, 4, 5, 7, 8, 9, 14, 16, 27)
"""Diagonals of a batch."""


def _diagonal(work: Work, values: Values, batch: int) -> Prospect:
    slots = float(work.statistics.diagonals * work.rows)
    chain = 1 + 2 * ceil(work.statistics.diagonals / batch)
    return Prospect(estimate(work, slots * work.element_bytes, slots * 10 / 32, chain, work.rows), dict(values))


def dia(work: Work) -> Iterator[Prospect]:
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256, 512)
    for values in combine(unroll=(4, 8, 2), block=blocks, load=loads(work)):
        yield _diagonal(work, values, number(values, "unroll"))


def dia_batched(work: Work) -> Iterator[Prospect]:
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256, 512)
    batches = near(min(work.statistics.diagonals, 16), BATCHES, 3)
    for values in combine(batch=batches, block=blocks, load=loads(work)):
        yield _diagonal(work, values, number(values, "batch"))


def _blocked(work: Work, rows: int, cols: int, lanes: int, values: Values) -> Prospect:
    slots = work.nnz / work.statistics.block_fill(rows, cols)
    size = slots * work.element_bytes + slots / (rows * cols) * 4
    chain = 2 + 2 * ceil(work.statistics.longest / (cols * lanes))
    threads = work.rows / rows * lanes
    return Prospect(estimate(work, size, slots * (3 + 8 / (rows * cols)) / 32 * 2, chain, threads), dict(values))


def bsr_lanes(work: Work) -> Iterator[Prospect]:
    for rows, cols in work.statistics.block_shapes()[:4]:
        for values in combine(
            block_rows=(rows,),
            block_cols=(cols,),
            lanes=near(work.statistics.mean / cols / 2, (1, 2, 4, 8, 16, 32), 3),
            block=(64, 128, 256),
            load=loads(work),
        ):
            yield _blocked(work, rows, cols, number(values, "lanes"), values)


def bsr_rows(work: Work) -> Iterator[Prospect]:
    for rows, cols in work.statistics.block_shapes()[:4]:
        for values in combine(
            block_rows=(rows,),
            block_cols=(cols,),
            unroll=(2, 4),
            block=(192, 64) if rows % 3 == 0 else (128, 64),
            load=loads(work),
        ):
            yield _blocked(work, rows, cols, rows, values)
