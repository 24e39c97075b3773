"""What is worth trying of HYB: how many slots a row, and who serves the remainder."""

from collections.abc import Iterator
from math import ceil

import numpy as np

from sparsesmith.families.estimates.cost import Prospect, Values, Work, combine, estimate, loads, near, number
from sparsesmith.families.estimates.splits import Split, split_bytes, split_choices

MOST_IN_FLIGHT = 16
HEAVY_IN_FLIGHT = 8
HEAVY = (0, *(1 << power for power in range(11)))
GIANT_ROW = 2048
HEAVY_BATCHES = 4
"""Batches of a few lanes that a row may take before a block of its own pays."""


def batch_of(width: int) -> int:
    """Slots of a row that are loaded together: all, or equal shares."""
    return -(-width // -(-width // MOST_IN_FLIGHT))


def _blocks(work: Work) -> tuple[int, ...]:
    return (64, 128, 256) if work.nnz < 300_000 else (128, 256)


def _blocks_of_heavy_rows(work: Work) -> tuple[int, ...]:
    """A giant row is the longer the fewer threads it has."""
    return (1024, 512, 256) if work.statistics.longest > GIANT_ROW else _blocks(work)


def hyb(work: Work) -> Iterator[Prospect]:
    for index, split in split_choices(work, "rows"):
        batch = batch_of(split.width)
        typical = float(np.median(split.rest_lengths))
        lanes = near(typical / batch, (2, 4, 8, 16, 32), 2)
        for values in combine(lanes=lanes, block=_blocks_of_heavy_rows(work), load=loads(work)):
            at_once = number(values, "lanes") * batch
            heavy = int(np.count_nonzero(split.rest_lengths > HEAVY_BATCHES * at_once))
            for count in near(heavy, HEAVY[1:], 1) if heavy else (0,):
                yield _one_launch(work, split, {"width": split.width, "heavy": count, "index": index, **values})


def _one_launch(work: Work, split: Split, values: Values) -> Prospect:
    """Two dependent loads in the regular part, three and more in the remainder, side by side."""
    lengths, batch = split.rest_lengths, batch_of(split.width)
    block, lanes = number(values, "block"), number(values, "lanes")
    heavy = min(number(values, "heavy"), lengths.size)
    longest_by_block = int(lengths[0]) if heavy else 0
    longest_by_lanes = int(lengths[heavy]) if heavy < lengths.size else 0
    further = max(batch, HEAVY_IN_FLIGHT) if heavy else batch
    batches = max(ceil(longest_by_block / (block * further)), ceil(longest_by_lanes / (lanes * further)))
    chain = 2.5 + 2 * batches + 0.4 * bool(heavy)
    threads = float(work.rows + heavy * block + (lengths.size - heavy) * lanes)
    slots = split.slots + 1.3 * split.rest
    size = split_bytes(work, split, str(values["index"]), 0) + work.rows / 8
    return Prospect(estimate(work, size, slots * 10 / 32 + threads * 25 / 32, chain, threads), dict(values))


def hyb_segmented(work: Work) -> Iterator[Prospect]:
    for index, split in split_choices(work, "coo"):
        for values in combine(items=(4, 2, 1), block=_blocks(work), load=loads(work)):
            items = number(values, "items")
            size = split_bytes(work, split, index, 4)
            instructions = split.slots * 9 / 32 + split.rest * (20 + 60 / items) / 32
            us = estimate(work, size, instructions, 6, float(work.rows), 2)
            yield Prospect(us, {"width": split.width, "index": index, **values})
