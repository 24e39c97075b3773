"""What is worth trying of blocks of rows whose products go through shared memory."""

from collections.abc import Iterator
from math import ceil

from sparsesmith.families.estimates.cost import (
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


def _staged(work: Work, values: Values, lanes: int, launches: int = 1) -> Prospect:
    """Products through shared memory; uneven rows only hurt where lanes are fixed."""
    statistics = work.statistics
    capacity = number(values, "block") * number(values, "unroll")
    index = str(values.get("index", "i32"))
    widest = min(statistics.longest, capacity)
    serial = widest / lanes * (0.1 if lanes else 0)
    long_row = 2 * ceil(max(statistics.longest - capacity, 0) / capacity)
    chain = 5 + min(serial, 60) + long_row + 0.15 * number(values, "unroll")
    instructions = work.nnz * 26 / 32 + work.rows * 14 / 32
    return Prospect(
        estimate(work, work.csr_bytes(index), instructions, chain, work.nnz / number(values, "unroll"), launches),
        dict(values),
    )


def staging_blocks(work: Work) -> tuple[int, ...]:
    return (64, 128, 256) if work.nnz < 300_000 else (128, 256, 64, 512)


def stream(work: Work) -> Iterator[Prospect]:
    for values in combine(
        lanes=near(work.statistics.mean / 6, (1, 2, 4, 8, 16, 32), 3),
        unroll=(4, 2, 8),
        block=staging_blocks(work),
        load=loads(work),
        index=indices(work.statistics.narrow_row_blocks(1024)),
    ):
        if values["index"] == "i32" or work.statistics.narrow_row_blocks(
            number(values, "block") * number(values, "unroll")
        ):
            yield _staged(work, values, number(values, "lanes"))


def adaptive(work: Work) -> Iterator[Prospect]:
    for values in combine(
        lanes=near(work.statistics.mean / 6, (1, 2, 4, 8), 2),
        unroll=(4, 8, 2),
        block=staging_blocks(work),
        load=loads(work),
        index=indices(work.statistics.narrow_row_blocks(1024)),
    ):
        if values["index"] == "i32" or work.statistics.narrow_row_blocks(
            number(values, "block") * number(values, "unroll")
        ):
            yield _staged(work, values, 32)


def binned(work: Work) -> Iterator[Prospect]:
    for prospect in adaptive(work):
        for warp_row_nnz in near(work.statistics.mean, (32, 64, 128), 2):
            yield Prospect(1.03 * prospect.estimated_us, {"warp_row_nnz": warp_row_nnz, **prospect.parameters})
