"""SpMM over HYB: a group of lanes a row over a few slots, each longer row by a whole block."""

from collections.abc import Iterator
from math import ceil

from sparsesmith.families.axes import BLOCK, INDEX, UNROLL, WIDTH, streamed
from sparsesmith.families.estimates.cost import (
    GATHER_SHARE,
    L2_BYTES_A_US,
    Prospect,
    Work,
    combine,
    estimate,
    loads,
    number,
)
from sparsesmith.families.estimates.splits import split_bytes, split_choices
from sparsesmith.families.estimates.suitability import hyb_suits
from sparsesmith.families.family import Family
from sparsesmith.families.spmm.dense_tiles import ONE_CHUNK_PARAMETERS, tile_fits, tile_of
from sparsesmith.families.text.program import Choice, Fact, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import ParameterValue

_CUDA = cuda_beside(__name__)


def _write(choice: Choice) -> str:
    tile, narrow, block = tile_of(choice, is_named=True), choice.word("index") == "u16", choice.integer("block")
    num_groups, unroll = block // tile.lanes, choice.integer("unroll")
    groups = choice.fact("GROUPS", f"{block}//LANES" if tile.lanes > 1 else str(block), num_groups)
    stride = choice.fact("STRIDE", f"GROUPS*{unroll}", num_groups * unroll)
    width = choice.named("WIDTH", choice.integer("width"))
    body = tile.fill(
        _CUDA["hyb"],
        lanes=tile.lanes_fact,
        groups=groups,
        stride=stride,
        width=width,
        in_tile=f" && column < {tile.dense_cols}" if tile.overhangs else "",
        slice_base="int base = slice_col_base[row / 32];" if narrow else "",
        base="base + " if narrow else "",
    )
    grid = f"num_rest_rows+ceil_div(num_rows,{groups}){tile.grid}"
    settings: dict[str, ParameterValue | Fact] = {"width": width, "rest": "rows", "index": choice.word("index")}
    return program(choice, settings, main_launch(choice, grid, body), facts=(*tile.facts, groups, stride, width))


def _tiles(work: Work) -> Iterator[dict[str, ParameterValue]]:
    """The widest vectors, by as many lanes as cover the columns or half of them."""
    vector = work.max_vector
    covering = min(32, 1 << max(0, ceil(work.num_dense_cols / vector) - 1).bit_length())
    for lanes in {covering, max(1, covering // 2)}:
        yield {"vector": vector, "lanes": lanes}


def _prospects(work: Work) -> Iterator[Prospect]:
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


SPMM_HYB = Family(
    name="spmm_hyb",
    operation="spmm",
    format="hyb",
    strategy="A group of lanes a row over `width` slots, longer rows by a whole block each; short rows with some long "
    "ones.",
    parameters={**ONE_CHUNK_PARAMETERS, "width": WIDTH, "unroll": UNROLL, "block": BLOCK, **streamed(index=INDEX)},
    suits=hyb_suits,
    write=_write,
    has_facts=True,
    allows=tile_fits,
    prospects=_prospects,
)

FAMILIES = (SPMM_HYB,)
