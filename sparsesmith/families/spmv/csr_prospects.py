"""What is worth trying of a row of CSR for each thread, a few lanes, a warp or a block."""

from collections.abc import Iterator
from math import ceil

from sparsesmith.families.estimates.cost import (
    BYTES_COUNT_NNZ,
    Prospect,
    Values,
    Work,
    combine,
    estimate,
    indices,
    loads,
    near,
    number,
)
from sparsesmith.formats.csr import FROM_ROW
from sparsesmith.formats.format import ParameterValue

LANES = (2, 4, 8, 16, 32)
CAPACITIES = (512, 1024, 2048, 3072, 4096, 6144, 8192, 12288)
"""Entries of x in shared memory."""


def _row_indices(work: Work) -> tuple[ParameterValue, ...]:
    """Column widths of CSR that the pattern allows, the narrowest first."""
    statistics, bytes_count = work.statistics, work.nnz >= BYTES_COUNT_NNZ and work.statistics.mean >= 3
    if bytes_count and statistics.has_far_reaching_row:
        return ("i32",)
    eight: tuple[ParameterValue, ...] = ("u8",) if bytes_count and statistics.rows_reach_within(256) else ()
    if bytes_count and not statistics.narrow and statistics.rows_reach_within(65536):
        return (*eight, "u16_row", "i32")
    return (*eight, *indices(statistics.narrow))


def rows_of_lanes(work: Work, values: Values, lanes: int, unroll: int) -> Prospect:
    """A row of CSR for each `lanes` lanes."""
    statistics = work.statistics
    step = lanes * unroll
    slots = work.rows * max(1.0, ceil(statistics.mean / step)) * step
    index = str(values.get("index", "i32"))
    scattered = (
        1 + 0.04 * min(statistics.mean, 24) if lanes == 1 else 1 + 0.1 * min(statistics.mean / lanes, 4) * (lanes < 8)
    )
    uneven = 1 + 0.3 * statistics.variation if lanes < 32 else 1
    chain = 2 + 2 * ceil(statistics.longest / step)
    instructions = slots * (11 + 8 / unroll) / 32 + work.rows * lanes * 12 / 32
    size = work.csr_bytes(index) + 4.0 * work.rows * (index in FROM_ROW)
    us = estimate(work, size * scattered, instructions * uneven, chain, float(work.rows * lanes))
    return Prospect(us, dict(values))


def scalar(work: Work) -> Iterator[Prospect]:
    unrolls = near(min(work.statistics.mean, 8), (1, 2, 4, 8, 16), 3)
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256)
    for values in combine(unroll=unrolls, block=blocks, load=loads(work), index=_row_indices(work)):
        yield rows_of_lanes(work, values, 1, number(values, "unroll"))


def vector(work: Work) -> Iterator[Prospect]:
    lanes = near(work.statistics.mean / 2, LANES, 3)
    blocks = (64, 128) if work.nnz < 300_000 else (128, 256)
    for values in combine(lanes=lanes, unroll=(2, 1, 4), block=blocks, load=loads(work), index=_row_indices(work)):
        yield rows_of_lanes(work, values, number(values, "lanes"), number(values, "unroll"))


def vector_persistent(work: Work) -> Iterator[Prospect]:
    for values in combine(
        lanes=near(work.statistics.mean / 2, LANES, 2),
        unroll=(2, 4),
        block=(256, 128),
        load=loads(work)[:1],
        index=_row_indices(work)[:1],
        blocks_per_sm=(8, 16),
    ):
        prospect = rows_of_lanes(work, values, number(values, "lanes"), number(values, "unroll"))
        yield Prospect(1.05 * prospect.estimated_us, prospect.parameters)


def vector_wide(work: Work) -> Iterator[Prospect]:
    width = 16 // work.element_bytes
    for values in combine(
        lanes=near(work.statistics.mean / width, (4, 8, 16, 32), 2),
        block=(128, 256),
        load=loads(work),
        index=_row_indices(work),
    ):
        yield rows_of_lanes(work, values, number(values, "lanes"), width)


def block(work: Work) -> Iterator[Prospect]:
    for values in combine(
        unroll=(4, 2, 8),
        block=near(work.statistics.mean / 4, (32, 64, 128, 256, 512, 1024), 3),
        load=loads(work),
        index=_row_indices(work)[:1],
    ):
        yield rows_of_lanes(work, values, number(values, "block"), number(values, "unroll"))


def shared_x(work: Work) -> Iterator[Prospect]:
    capacity = min(entry for entry in CAPACITIES if entry >= work.statistics.pattern.num_cols)
    for values in combine(
        capacity=(capacity,),
        lanes=near(work.statistics.mean / 4, LANES, 2),
        unroll=(2, 4),
        block=(512, 1024, 256),
        blocks_per_sm=(2, 1),
        load=loads(work),
        index=_row_indices(work)[:1],
    ):
        prospect = rows_of_lanes(work, values, number(values, "lanes"), number(values, "unroll"))
        copying = 1.0 + capacity * work.element_bytes / 32e3
        yield Prospect(0.9 * prospect.estimated_us + copying, prospect.parameters)
