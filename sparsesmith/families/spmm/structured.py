"""SpMM that reuses rows of the dense operand: dense blocks, diagonals, sorted slices, panels in shared memory."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import ceil

from sparsesmith.elements import ALL_TYPES
from sparsesmith.families.axes import BLOCK, DEPENDENCY, EXTENT, INDEX, REGISTERS, SIGMA, UNROLL, streamed
from sparsesmith.families.estimates.cost import Prospect, Work, combine, index_bytes, indices, loads, number, sigmas
from sparsesmith.families.estimates.scatter import SECTOR_BYTES, sectors_a_nonzero
from sparsesmith.families.estimates.suitability import any_pattern, dia_suits
from sparsesmith.families.family import Family
from sparsesmith.families.spmm.dense_tiles import ONE_CHUNK_PARAMETERS, TILE_PARAMETERS, tile_fits, tile_of
from sparsesmith.families.spmm.prospects import gathered, one_chunk_tiles, tiles
from sparsesmith.families.text.program import MAX_STATIC_SHARED_BYTES, Choice, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.building.numbering import ROWS_BY_BREADTH
from sparsesmith.formats.format import OneOf, ParameterSpec
from sparsesmith.formats.values.storage import Constant

_CUDA = cuda_beside(__name__)

MIN_REORDERED_NNZ = 100_000
WORTHWHILE_REUSE = 1.2
"""Times fewer rows of B that a run of nonzeros reads, from which on another order is tried."""
MOST_REUSE = 2.0
"""What of it counts: L1 holds little, and catches some of what is read again in any order."""


def _write_bsr(choice: Choice) -> str:
    tile = tile_of(choice)
    grid = f"ceil_div(num_block_rows,{choice.integer('block') // tile.lanes}){tile.grid}"
    settings = {name: choice.integer(name) for name in ("block_rows", "block_cols")}
    return program(choice, settings, main_launch(choice, grid, tile.fill(_CUDA["bsr"])), facts=tile.facts)


def _write_dia(choice: Choice) -> str:
    tile = tile_of(choice)
    grid = f"ceil_div(num_rows,{choice.integer('block') // tile.lanes}){tile.grid}"
    return program(choice, {}, main_launch(choice, grid, tile.fill(_CUDA["dia"])), facts=tile.facts)


def _write_sell(choice: Choice, *, moves_rows: bool = False) -> str:
    tile, slice_, narrow = tile_of(choice), choice.integer("slice"), choice.word("index") == "u16"
    natural = choice.integer("sigma") == 1 and not moves_rows
    body = tile.fill(
        _CUDA["sell"],
        row="slot" if natural else "row_permutation[slot]",
        stride=slice_ * choice.integer("unroll"),
        is_row="row < num_rows" if natural else "row >= 0",
        slice_base="int base = slice_col_base[slice];" if narrow else "",
        base="base + " if narrow else "",
    )
    grid = f"ceil_div(num_slices*{slice_},{choice.integer('block') // tile.lanes}){tile.grid}"
    settings = {name: choice.values[name] for name in ("slice", "sigma", "index")}
    if moves_rows:
        settings["rows"] = "breadth"
    return program(choice, settings, main_launch(choice, grid, body), facts=tile.facts)


def _write_panel(choice: Choice) -> str:
    tile, block = tile_of(choice), choice.integer("block")
    cols = tile.dense_cols
    groups = block // tile.lanes
    rows = groups * choice.integer("rows")
    across = f"(size_t)(start + i / {tile.width}) * {cols} + blockIdx.y * {tile.width} + i % {tile.width}"
    body = tile.fill(
        _CUDA["panel"],
        elements=choice.integer("panel") * tile.width,
        own_column=f"threadIdx.x % {tile.lanes} * {tile.vector}",
        block_rows=rows,
        groups=groups,
        tile=tile.width,
        copy_step=block * tile.vector,
        source=f"(size_t)start * {cols} + i" if tile.num_tiles == 1 else across,
        tile_start=f" + blockIdx.y * {tile.width}" if tile.grid else "",
    )
    launch = main_launch(choice, f"ceil_div(num_rows,{rows}){tile.grid}", body)
    return program(choice, {"index": choice.word("index")}, launch, facts=tile.facts)


def _blocks_fit(choice: Choice) -> bool:
    rows = choice.integer("block_rows")
    return tile_fits(choice) and rows * choice.integer("block_cols") > 1 and rows * choice.integer("vector") <= 32


def _panel_fits(choice: Choice) -> bool:
    tile = tile_of(choice)
    shared = choice.integer("panel") * tile.width * choice.element_bytes
    return tile_fits(choice) and not tile.overhangs and shared <= MAX_STATIC_SHARED_BYTES


def _bsr_prospects(work: Work) -> Iterator[Prospect]:
    for rows, cols in work.statistics.block_shapes()[:4]:
        fill = work.statistics.block_fill(rows, cols)
        for tile in one_chunk_tiles(work):
            for rest in combine(
                block_rows=(rows,), block_cols=(cols,), unroll=(2, 1, 4), block=(128, 64, 256), load=loads(work)[:1]
            ):
                size = work.nnz / fill * (work.element_bytes + 4 / (rows * cols))
                chain = 2 + 2 * ceil(work.statistics.longest / cols / number(rest, "unroll"))
                yield gathered(work, {**tile, **rest}, size, 1 / fill, chain, reuse=rows)


def _dia_prospects(work: Work) -> Iterator[Prospect]:
    padding = work.statistics.dia_padding
    for tile in tiles(work):
        for rest in combine(unroll=(4, 8), block=(128, 64, 256), load=loads(work)):
            chain = 1 + 2 * ceil(work.statistics.diagonals / number(rest, "unroll"))
            yield gathered(work, {**tile, **rest}, work.nnz * padding * work.element_bytes, padding, chain, reuse=2)


def _reordered_sell_prospects(work: Work) -> Iterator[Prospect]:
    """Of the rows in breadth, where neighbours come to share rows of B: nothing is copied, as these are read whole."""
    kept = sectors_a_nonzero(work.statistics.pattern, SECTOR_BYTES)
    ordered = replace(work, statistics=work.statistics.numbered(ROWS_BY_BREADTH))
    reuse = min(kept / sectors_a_nonzero(ordered.statistics.pattern, SECTOR_BYTES), MOST_REUSE)
    if reuse >= WORTHWHILE_REUSE:
        yield from _sell_prospects(ordered, reuse)


def _sell_prospects(work: Work, reuse: float = 1.0) -> Iterator[Prospect]:
    for tile in tiles(work):
        for rest in combine(
            slice=(8, 32),
            sigma=sigmas(work, 8),
            unroll=(4, 2),
            block=(128, 64),
            load=loads(work)[:1],
            index=("u16", "i32"),
        ):
            slice_, sigma = number(rest, "slice"), number(rest, "sigma")
            if rest["index"] == "u16" and not work.statistics.narrow_slices(slice_, sigma):
                continue
            padding = work.statistics.sell_padding(slice_, sigma)
            size = work.nnz * padding * (work.element_bytes + index_bytes(rest["index"]))
            if padding < 4:
                chain = 3 + 2 * ceil(work.statistics.longest / number(rest, "unroll"))
                yield gathered(work, {**tile, **rest}, size, padding, chain, reuse)


def _panel_prospects(work: Work) -> Iterator[Prospect]:
    density = work.statistics.mean / work.statistics.pattern.num_cols
    for tile in one_chunk_tiles(work):
        for rest in combine(
            panel=(64, 32, 128, 256), rows=(4, 2, 8), block=(256, 128, 512), index=indices(work.statistics.narrow)
        ):
            rows = number(rest, "rows") * number(rest, "block") // number(tile, "lanes")
            chain = 4 * work.statistics.mean * number(rest, "rows")
            reuse = max(0.2, density * rows)
            yield gathered(work, {**tile, **rest}, work.csr_bytes(str(rest["index"])), 1.0, min(chain, 400), reuse)


SPMM_BSR = Family(
    name="spmm_bsr",
    operation="spmm",
    format="bsr",
    strategy="A group a block row with a register tile, so that each row of B is read once for all rows of a block.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "block_rows": EXTENT,
        "block_cols": EXTENT,
        "unroll": OneOf(2, (1, 2, 4)),
        "block": BLOCK,
        **streamed(),
    },
    suits=lambda pattern: pattern.nnz >= 2 * pattern.num_rows,
    write=_write_bsr,
    has_facts=True,
    allows=_blocks_fit,
    element_types=ALL_TYPES,
    prospects=_bsr_prospects,
)

SPMM_DIA = Family(
    name="spmm_dia",
    operation="spmm",
    format="dia",
    strategy="A group a row over stored diagonals, no column indices to wait for; stencils and bands.",
    parameters={**TILE_PARAMETERS, "unroll": UNROLL, "block": BLOCK, **streamed()},
    suits=dia_suits,
    write=_write_dia,
    has_facts=True,
    allows=tile_fits,
    prospects=_dia_prospects,
)

_SELL_PARAMETERS: dict[str, ParameterSpec] = {
    **TILE_PARAMETERS,
    "slice": OneOf(8, (4, 8, 16, 32)),
    "sigma": SIGMA,
    "unroll": UNROLL,
    "block": BLOCK,
    **streamed(index=INDEX),
}

SPMM_SELL = Family(
    name="spmm_sell",
    operation="spmm",
    format="sell",
    strategy="A group a row of a slice, rows sorted so that a warp's groups finish together; uneven short rows.",
    parameters=_SELL_PARAMETERS,
    suits=any_pattern,
    write=_write_sell,
    has_facts=True,
    allows=tile_fits,
    prospects=_sell_prospects,
)

SPMM_SELL_REORDERED = Family(
    name="spmm_sell_reordered",
    operation="spmm",
    format="sell",
    strategy="As spmm_sell, the rows in an order in which neighbours read the same rows of B, each written where it "
    "belongs; graphs of neighbours in an order that says nothing.",
    parameters=_SELL_PARAMETERS,
    suits=lambda pattern: pattern.nnz >= MIN_REORDERED_NNZ,
    write=partial(_write_sell, moves_rows=True),
    has_facts=True,
    allows=tile_fits,
    prospects=_reordered_sell_prospects,
    reorders=True,
)

SPMM_PANEL = Family(
    name="spmm_panel",
    operation="spmm",
    format="csr",
    strategy="A block keeps sums of many rows in registers and walks panels of B through shared memory; nearly dense "
    "matrices such as pruned layers.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "panel": OneOf(64, (16, 32, 64, 128, 256)),
        "rows": OneOf(4, (1, 2, 4, 8)),
        "block": OneOf(256, (128, 256, 512)),
        "registers": REGISTERS,
        "index": INDEX,
        "dependency": DEPENDENCY,
    },
    suits=lambda pattern: pattern.nnz >= 0.01 * pattern.num_rows * pattern.num_cols and pattern.num_cols <= 65536,
    write=_write_panel,
    has_facts=True,
    allows=_panel_fits,
    takes=lambda choice, storage: not isinstance(storage, Constant),
    prospects=_panel_prospects,
)
"""A read of a value there counts on, too: it cannot be left out."""

FAMILIES = (SPMM_BSR, SPMM_DIA, SPMM_SELL, SPMM_SELL_REORDERED, SPMM_PANEL)
