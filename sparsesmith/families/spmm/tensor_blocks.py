"""SpMM of 16-bit numbers over dense blocks of 16 by 16 on tensor cores, with sums in float32.

A warp multiplies a block with 8 dense columns by one instruction (PTX ISA, `mma.m16n8k16`). Which dense column stands
in which place of it is free: a lane reads `vector` neighbouring columns at once, one for each of as many products.
"""

from collections.abc import Iterator
from math import ceil

from sparsesmith.families.axes import BLOCK, streamed
from sparsesmith.families.estimates.cost import GATHER_SHARE, L2_BYTES_A_US, Prospect, Work, combine, estimate, number
from sparsesmith.families.family import Family
from sparsesmith.families.text.packed import SHORT_TYPES, words, writer
from sparsesmith.families.text.program import Choice, main_launch, program, vector
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.families.text.tensor import COLUMNS, WORDS_A_STORE, join, multiplier, products, stores
from sparsesmith.formats.format import OneOf

_CUDA = cuda_beside(__name__)

EXTENT = 16
"""Of a block, each way."""
MIN_FILL = 0.3
"""Share of nonzeros in blocks from which on they are proposed: a nonzero alone costs as much as its whole block."""
NOT_MEASURED = 1.5
"""What estimates are multiplied by until a GPU has corrected them: others are not taken for hopeless beside them."""

_VECTORS, _SPLITS = (1, 2, 4, 8), (1, 2, 4, 8)


def _write(choice: Choice) -> str:
    width, splits, warps = choice.integer("vector"), choice.integer("splits"), choice.integer("block") // 32
    tiles = choice.num_dense_cols // (COLUMNS * width)
    stored = min(width, WORDS_A_STORE)
    body = choice.fill(
        _CUDA["blocks"],
        per_block=warps // splits,
        tile=f"blockIdx.y * {COLUMNS * width} + " if tiles > 1 else "",
        dense_cols=choice.num_dense_cols,
        Words="unsigned short" if width == 1 else words(width),
        Result="unsigned int" if stored == 1 else vector("uint", stored),
        read=choice.vector_read,
        products="\n".join(products(width)),
        join=_join(choice, warps),
        stores="\n".join(stores(width)),
    )
    grid = f"ceil_div(num_block_rows,{warps // splits})" + (f",{tiles}" if tiles > 1 else "")
    settings = {"block_rows": EXTENT, "block_cols": EXTENT}
    functions = (multiplier(choice), writer(choice))
    return program(choice, settings, main_launch(choice, grid, body), functions=functions)


def _join(choice: Choice, warps: int) -> str:
    """What several warps of a block row do to become one; of one alone, only to leave where there is no row."""
    leave = "if (block_row >= num_block_rows) return;"
    if choice.integer("splits") == 1:
        return leave
    return join(choice, warps, 4 * choice.integer("vector"), "part") + "\n" + leave


def _fits(choice: Choice) -> bool:
    """Whole products of dense columns, and all warps of a block row in one thread block."""
    whole = choice.num_dense_cols % (COLUMNS * choice.integer("vector")) == 0
    return whole and 32 * choice.integer("splits") <= choice.integer("block")


def _prospects(work: Work) -> Iterator[Prospect]:
    fill = work.statistics.block_fill(EXTENT, EXTENT)
    if fill < MIN_FILL or work.num_dense_cols % COLUMNS:
        return
    blocks, block_rows = work.nnz / fill / EXTENT**2, ceil(work.rows / EXTENT)
    longest = max(1.0, work.statistics.longest / EXTENT)
    size = blocks * (EXTENT**2 * work.element_bytes + 4)
    gathers = blocks * EXTENT * work.num_dense_cols * work.element_bytes * GATHER_SHARE / L2_BYTES_A_US
    widths = [width for width in reversed(_VECTORS) if work.num_dense_cols % (COLUMNS * width) == 0][:3]
    for rest in combine(vector=tuple(widths), splits=_SPLITS, unroll=(2, 1, 4), block=(128, 256), load=("ldcs", "ldg")):
        width, splits, unroll = (number(rest, name) for name in ("vector", "splits", "unroll"))
        if 32 * splits > number(rest, "block"):
            continue
        tiles = work.num_dense_cols // (COLUMNS * width)
        instructions = tiles * (blocks * (24 + 4 * width) + block_rows * splits * (60 + 12 * width * (splits > 1)))
        chain = 2 + 2 * ceil(longest / splits / unroll) + 2 * (splits > 1)
        us = estimate(work, size * tiles, instructions, chain, 32.0 * block_rows * splits * tiles)
        yield Prospect(NOT_MEASURED * (us + gathers), rest)


SPMM_BSR_TENSOR = Family(
    name="spmm_bsr_tensor",
    operation="spmm",
    format="bsr",
    strategy="Warps a block row, tensor cores on dense 16 x 16 blocks of 16-bit numbers, 8 to 64 dense columns a warp.",
    parameters={
        "vector": OneOf(1, _VECTORS),
        "splits": OneOf(1, _SPLITS),
        "unroll": OneOf(2, (1, 2, 4)),
        "block": BLOCK,
    }
    | streamed(),
    suits=lambda pattern: pattern.nnz >= EXTENT * pattern.num_rows // 4,
    write=_write,
    allows=_fits,
    element_types=SHORT_TYPES,
    prospects=_prospects,
)

FAMILIES = (SPMM_BSR_TENSOR,)
