"""SpMV that stores fewer indices: diagonals have none, dense blocks share one."""

from sparsesmith.elements import ALL_TYPES
from sparsesmith.families.axes import ANY_BLOCK, BLOCK, EXTENT, UNROLL, streamed
from sparsesmith.families.estimates.suitability import dia_suits
from sparsesmith.families.family import Family
from sparsesmith.families.spmv import structured_prospects as prospects
from sparsesmith.families.text.idioms import warp_sum
from sparsesmith.families.text.program import Choice, main_launch, program, vector
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf

_CUDA = cuda_beside(__name__)


def _write_dia(choice: Choice, section: str) -> str:
    grid = f"ceil_div(num_rows,{choice.integer('block')})"
    return program(choice, {}, main_launch(choice, grid, choice.fill(_CUDA[section])))


def _block_settings(choice: Choice) -> dict[str, int]:
    return {name: choice.integer(name) for name in ("block_rows", "block_cols")}


def _write_bsr_lanes(choice: Choice) -> str:
    lanes, size = choice.integer("lanes"), choice.integer("block_rows") * choice.integer("block_cols")
    width = choice.widest
    while size % width:
        width //= 2
    body = choice.fill(
        _CUDA["bsr_lanes"],
        size=size,
        step="e++" if width == 1 else f"e += {width}",
        entry="tile[e]" if width == 1 else f"*({vector(choice.scalar, width)}*)(tile + e)",
        width=width,
        warp_sum=warp_sum(lanes, "sum[i]"),
        leads="" if lanes == 1 else "lane == 0 && ",
    )
    launch = main_launch(choice, f"ceil_div(num_block_rows,{choice.integer('block') // lanes})", body)
    return program(choice, _block_settings(choice), launch, functions=(choice.value_function(width),))


def _write_bsr_rows(choice: Choice) -> str:
    launch = main_launch(choice, f"ceil_div(num_rows,{choice.integer('block')})", choice.fill(_CUDA["bsr_rows"]))
    return program(choice, _block_settings(choice), launch)


DIA = Family(
    name="dia",
    operation="spmv",
    format="dia",
    strategy="One thread a row over stored diagonals, no column indices to read; stencils and bands.",
    parameters={"unroll": UNROLL, "block": ANY_BLOCK, **streamed()},
    suits=dia_suits,
    write=lambda choice: _write_dia(choice, "dia"),
    prospects=prospects.dia,
)

DIA_BATCHED = Family(
    name="dia_batched",
    operation="spmv",
    format="dia",
    strategy="Diagonals in batches whose loads are all in flight together; stencils, latency bound or large.",
    parameters={"batch": OneOf(5, prospects.BATCHES), "block": ANY_BLOCK, **streamed()},
    suits=dia_suits,
    write=lambda choice: _write_dia(choice, "dia_batched"),
    prospects=prospects.dia_batched,
)

BSR_LANES = Family(
    name="bsr_lanes",
    operation="spmv",
    format="bsr",
    strategy="A lane a dense block, a few lanes a block row; matrices of small dense blocks.",
    parameters={
        "block_rows": EXTENT,
        "block_cols": EXTENT,
        "lanes": OneOf(4, (1, 2, 4, 8, 16, 32)),
        "block": BLOCK,
        **streamed(),
    },
    suits=lambda pattern: pattern.nnz >= 2 * pattern.num_rows,
    write=_write_bsr_lanes,
    allows=lambda choice: 1 < choice.integer("block_rows") * choice.integer("block_cols") <= 36,
    prospects=prospects.bsr_lanes,
)

BSR_ROWS = Family(
    name="bsr_rows",
    operation="spmv",
    format="bsr",
    strategy="A thread a row of its block row, so that neighbouring threads share block and columns; many block rows.",
    parameters={
        "block_rows": EXTENT,
        "block_cols": EXTENT,
        "unroll": OneOf(2, (1, 2, 4)),
        "block": OneOf(128, (64, 128, 256, 192)),
        **streamed(),
    },
    suits=lambda pattern: pattern.nnz >= 2 * pattern.num_rows,
    write=_write_bsr_rows,
    allows=lambda choice: choice.integer("block_rows") * choice.integer("block_cols") > 1,
    element_types=ALL_TYPES,
    prospects=prospects.bsr_rows,
)

FAMILIES = (DIA, DIA_BATCHED, BSR_LANES, BSR_ROWS)
