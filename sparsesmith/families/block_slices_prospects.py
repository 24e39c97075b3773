"""Prospects of the families over slices of dense blocks."""

from collections.abc import Callable, Iterator, Mapping
from math import ceil

from sparsesmith.families.padded import MAX_ELL_PADDING
from sparsesmith.families.prospects import (
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
from sparsesmith.families.residency_prospects import keeps, unkept_share

UNROLLS = (1, 2, 4, 8)
SMALL_ROWS = 60_000
"""Below this many block rows one lane each cannot fill the device."""


def _bsell(work: Work) -> Iterator[Prospect]:
    for rows, cols in work.shape.block_shapes()[:3]:
        block_rows = work.rows / rows
        blocks_a_row = work.shape.mean / cols / work.shape.block_fill(rows, cols)
        lanes = (1, 2) if block_rows > SMALL_ROWS else (4, 2, 8, 1)
        sigmas = (1,) if work.shape.sell_padding(32 * rows, 1) < 1.1 else (1, 256, 4096)
        for values in combine(
            block_rows=(rows,),
            block_cols=(cols,),
            lanes=lanes,
            sigma=sigmas,
            unroll=UNROLLS,
            edge=("cut" if work.shape.pattern.num_cols % cols else "whole",),
            block=(64, 128) if block_rows < SMALL_ROWS else (128, 64, 256),
            load=loads(work),
            keep=keeps(work.nnz * work.element_bytes / work.shape.block_fill(rows, cols)),
            index=("u16", "i32") if _is_narrow(work, rows, cols, max(32, *sigmas)) else ("i32",),
        ):
            if number(values, "unroll") in near(blocks_a_row / number(values, "lanes"), UNROLLS, 2):
                padding = work.shape.sell_padding(32 // number(values, "lanes") * rows, rows * number(values, "sigma"))
                if padding < MAX_ELL_PADDING:
                    yield _sliced_blocks(work, values, padding, blocks_a_row)


def _is_narrow(work: Work, rows: int, cols: int, block_rows: int) -> bool:
    """Whether 16 bits hold the block columns, or their offsets within this many block rows (on the safe side)."""
    return work.shape.pattern.num_cols <= 65536 * cols or work.shape.narrow_slices(block_rows * rows, 1)


def _sliced_blocks(work: Work, values: Values, padding: float, blocks_a_row: float) -> Prospect:
    rows, cols, lanes = (number(values, name) for name in ("block_rows", "block_cols", "lanes"))
    blocks = work.rows / rows * blocks_a_row * padding
    size = blocks * (rows * cols * work.element_bytes + index_bytes(values["index"]))
    longest = max(blocks_a_row, work.shape.longest / cols)
    chain = 2 + 2 * ceil(longest / (lanes * number(values, "unroll")))
    instructions = blocks * (6 + 2.2 * rows * cols) / 32 + work.rows * lanes * 6 / 32
    us = estimate(work, size * unkept_share(values), instructions, chain, work.rows / rows * lanes)
    return Prospect(us, dict(values))


PROSPECTS: Mapping[str, Callable[[Work], Iterator[Prospect]]] = {"bsell": _bsell}
