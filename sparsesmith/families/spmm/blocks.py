"""SpMM over dense blocks, several groups of lanes a block row: a row of B is read once for all rows of a block."""

from collections.abc import Iterator
from math import ceil

from sparsesmith.families.axes import BLOCK, DEPENDENCY, LOAD, REGISTERS
from sparsesmith.families.estimates.cost import Prospect, Work, combine, near, number
from sparsesmith.families.family import Family
from sparsesmith.families.spmm.dense_tiles import ONE_CHUNK_PARAMETERS, tile_fits, tile_of
from sparsesmith.families.spmm.prospects import gathered_us, placements, shared, tiles_of_groups
from sparsesmith.families.spmm.splits import (
    PLACEMENT,
    block_number,
    grid_of,
    group,
    may_store,
    own_column,
    shuffle_sum,
    store_vector,
)
from sparsesmith.families.text.program import Choice, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf

_CUDA = cuda_beside(__name__)

MAX_SUMS = 32
"""Entries of the result that a thread sums, in words."""


def _write(choice: Choice) -> str:
    tile, splits = tile_of(choice), choice.integer("splits")
    threads, number_ = tile.lanes * splits, block_number(choice)
    per_block = choice.integer("block") // threads
    body = tile.fill(
        _CUDA["blocks"],
        number=f"({number_})" if " " in number_ else number_,
        per_block=per_block,
        threads=threads,
        group=group(tile),
        own_column=own_column(tile),
        reduce=shuffle_sum(tile, splits, braces=True),
        inside=may_store(tile),
        store_row=store_vector(tile, f"c + (size_t)row * {tile.dense_cols} + column"),
    )
    settings = {name: choice.integer(name) for name in ("block_rows", "block_cols")}
    launch = main_launch(choice, grid_of(f"ceil_div(num_block_rows,{per_block})", tile), body)
    return program(choice, settings, launch, facts=(*tile.facts, tile.edge_fact))


def _blocks_fit(choice: Choice) -> bool:
    """Blocks of more than one entry, a block row's groups within one warp, sums in registers."""
    words = choice.integer("vector") * choice.element_bytes // 4
    several = choice.integer("block_rows") * choice.integer("block_cols") > 1
    in_warp = choice.integer("lanes") * choice.integer("splits") <= 32
    return tile_fits(choice) and several and in_warp and choice.integer("block_rows") * words <= MAX_SUMS


def _prospects(work: Work) -> Iterator[Prospect]:
    for rows, cols in work.statistics.block_shapes()[:4]:
        if rows == 1:
            continue
        fill = work.statistics.block_fill(rows, cols)
        a_row = max(1.0, work.statistics.mean / cols / fill)
        for tile in tiles_of_groups(work):
            in_a_warp = tuple(splits for splits in (2, 4, 8, 16) if splits * number(tile, "lanes") <= 32)
            for rest in combine(
                block_rows=(rows,), block_cols=(cols,), splits=near(a_row / 3, in_a_warp, 2), unroll=(2, 1, 4),
                block=(128, 64, 256), load=("ldg",), placement=placements(work),
            ):  # fmt: skip
                size = work.nnz / fill * (work.element_bytes + 4 / (rows * cols))
                chain = 2.5 + 2 * ceil(work.statistics.longest / cols / number(rest, "splits") / number(rest, "unroll"))
                groups = work.rows / rows * number(rest, "splits")
                whole = shared(work, {**tile, **rest}, size, groups, work.nnz / fill / rows, chain)
                saved = (1 - 1 / rows) * gathered_us(work, str(rest["placement"]))
                yield Prospect(whole.estimated_us - saved, whole.parameters)


SPMM_BSR_SPLIT = Family(
    name="spmm_bsr_split",
    operation="spmm",
    format="bsr",
    strategy="Several groups of lanes a block row with register tiles, joined by shuffles; dense blocks in long rows.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "block_rows": OneOf(2, (2, 3, 4, 6, 8)),
        "block_cols": OneOf(2, (1, 2, 3, 4, 6)),
        "splits": OneOf(4, (2, 4, 8, 16)),
        "unroll": OneOf(2, (1, 2, 4)),
        "block": BLOCK,
        "load": LOAD,
        "placement": PLACEMENT,
        "registers": REGISTERS,
        "dependency": DEPENDENCY,
    },
    suits=lambda pattern: pattern.nnz >= 4 * pattern.num_rows,
    write=_write,
    has_facts=True,
    allows=_blocks_fit,
    prospects=_prospects,
)

FAMILIES = (SPMM_BSR_SPLIT,)
