"""What is worth trying of padded formats, ELL and SELL."""

from collections.abc import Iterator
from math import ceil

from sparsesmith.families.estimates.cost import (
    BYTES_COUNT_NNZ,
    Prospect,
    Values,
    Work,
    combine,
    estimate,
    index_bytes,
    loads,
    near,
    number,
    sigmas,
)
from sparsesmith.formats.building.windows import REACHES

SLICE_INDICES = ("u16", "i32", "u8", "u16_slot")
MAX_WINDOW_PADDING = 1.1
"""Slots in windows of columns for each slot without: with more, 16 bits from the slice's base are no larger."""


def _padded_rows(
    work: Work, values: Values, padding: float, lanes: int, unroll: int, chain: float, slice_: int = 0
) -> Prospect:
    index = values.get("index", "i32")
    base_bytes = 4 / slice_ if index in REACHES else 0.0
    slots = work.nnz * padding
    longest = ceil(work.statistics.longest / (lanes * unroll))
    instructions = slots * (9 + 6 / unroll) / 32 + work.rows * 10 / 32
    us = estimate(
        work,
        slots * (work.element_bytes + index_bytes(index) + base_bytes),
        instructions,
        chain + 2 * longest,
        float(work.rows * lanes),
    )
    return Prospect(us, dict(values))


def ell(work: Work) -> Iterator[Prospect]:
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256, 512)
    for values in combine(unroll=near(work.statistics.longest, (1, 2, 4, 8), 3), block=blocks, load=loads(work)):
        yield _padded_rows(work, values, work.statistics.ell_padding, 1, number(values, "unroll"), 1)


def ell_fixed(work: Work) -> Iterator[Prospect]:
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256, 512)
    for values in combine(width=(work.statistics.longest,), block=blocks, load=loads(work)):
        yield _padded_rows(work, values, work.statistics.ell_padding, 1, work.statistics.longest, 1)


def ell_parts(work: Work) -> Iterator[Prospect]:
    for values in combine(
        parts=near(work.statistics.longest / 4, (2, 4, 8, 16), 3), unroll=(4, 2, 8), load=loads(work)
    ):
        yield _padded_rows(
            work, values, work.statistics.ell_padding, number(values, "parts"), number(values, "unroll"), 2
        )


def _sliced(work: Work, values: Values, slice_: int, lanes: int) -> Iterator[Prospect]:
    sigma, index = number(values, "sigma"), str(values["index"])
    if index == "u16" and not work.statistics.narrow_slices(slice_, sigma):
        return
    padding = work.statistics.sell_padding(slice_, sigma)
    if padding >= 8:
        return
    if index in REACHES:
        if work.nnz < BYTES_COUNT_NNZ or (index == "u16_slot" and work.statistics.narrow_slices(slice_, sigma)):
            return
        in_windows = work.statistics.window_padding(slice_, sigma, index)
        if in_windows > MAX_WINDOW_PADDING:
            return
        padding *= in_windows
    yield _padded_rows(work, values, padding, lanes, number(values, "unroll"), 2 + 0.5 * (sigma != 1), slice_)


def sell(work: Work) -> Iterator[Prospect]:
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256)
    for values in combine(
        slice=(32, 64),
        sigma=sigmas(work, 32),
        unroll=near(work.statistics.mean, (1, 2, 4, 8), 3),
        block=blocks,
        load=loads(work),
        index=SLICE_INDICES,
    ):
        yield from _sliced(work, values, number(values, "slice"), 1)


def sell_lanes(work: Work) -> Iterator[Prospect]:
    for values in combine(
        slice=(8, 4, 16),
        lanes=(4, 8, 2),
        sigma=sigmas(work, 8),
        unroll=near(work.statistics.mean / 4, (1, 2, 4), 2),
        block=(64, 128) if work.nnz < 300_000 else (128, 256),
        load=loads(work)[:1],
        index=SLICE_INDICES,
    ):
        yield from _sliced(work, values, number(values, "slice"), number(values, "lanes"))


def sell_wide(work: Work) -> Iterator[Prospect]:
    for values in combine(
        rows=(2, 4),
        sigma=sigmas(work, 64),
        unroll=(4, 2),
        block=(128, 64, 256),
        load=loads(work),
        index=SLICE_INDICES,
    ):
        for prospect in _sliced(work, values, 32 * number(values, "rows"), 1):
            yield Prospect(prospect.estimated_us + 0.2, prospect.parameters)
