"""Prospects of the spmm family over HYB."""

from collections.abc import Callable, Iterator, Mapping
from math import ceil

from sparsesmith.families.hyb_prospects import split_bytes, split_choices
from sparsesmith.families.prospects import (
    GATHER_SHARE,
    L2_BYTES_A_US,
    Prospect,
    Work,
    combine,
    estimate,
    loads,
    number,
)
from sparsesmith.formats.format import ParameterValue


def _tiles(work: Work) -> Iterator[dict[str, ParameterValue]]:
    """The widest vectors, by as many lanes as cover the columns or half of them."""
    vector = work.max_vector
    covering = min(32, 1 << max(0, ceil(work.num_dense_cols / vector) - 1).bit_length())
    for lanes in {covering, max(1, covering // 2)}:
        yield {"vector": vector, "lanes": lanes}


def _spmm_hyb(work: Work) -> Iterator[Prospect]:
    """Rows of the remainder are taken apart by the groups of a block, side by side with the regular part."""
    for (index, split), tile in ((choice, tile) for choice in split_choices(work, "rows") for tile in _tiles(work)):
        for rest in combine(unroll=(4, 8, 2), block=(128, 64, 256), load=loads(work)[:1]):
            vector, lanes, block = number(tile, "vector"), number(tile, "lanes"), number(rest, "block")
            tiles = ceil(work.num_dense_cols / (vector * lanes))
            groups = block // lanes
            serial = ceil(int(split.rest_lengths[0]) / groups / number(rest, "unroll"))
            chain = 3 + 2 * max(serial, ceil(split.width / number(rest, "unroll"))) + 0.05 * groups
            slots = split.slots + 1.3 * split.rest
            threads = float(work.rows * lanes + split.rest_lengths.size * block) * tiles
            instructions = slots * (8 + vector) * lanes * tiles / 32 + threads * 20 / 32
            size = split_bytes(work, split, index, 0) * tiles
            us = estimate(work, size, instructions, chain, threads)
            gathered = GATHER_SHARE * work.nnz * work.num_dense_cols * work.element_bytes / L2_BYTES_A_US
            yield Prospect(us + gathered, {**tile, "width": split.width, "index": index, **rest})


PROSPECTS: Mapping[str, Callable[[Work], Iterator[Prospect]]] = {"spmm_hyb": _spmm_hyb}
"""Parameters worth trying, by family."""
