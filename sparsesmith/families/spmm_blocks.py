"""SpMM over dense blocks, several groups of lanes a block row: a row of B is read once for all rows of a block."""

from sparsesmith.families.csr import LOAD, REGISTERS
from sparsesmith.families.dense_tiles import ONE_CHUNK_PARAMETERS, DenseTile, tile_fits, tile_of
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import FULL_WARP, Launch, fill, load, program
from sparsesmith.families.spmm_splits import (
    PLACEMENT,
    block_number,
    grid_of,
    may_store,
    own_column,
    store_vector,
)
from sparsesmith.formats.format import OneOf

MAX_SUMS = 32
"""Entries of the result that a thread sums, in words."""


def _reduce(tile: DenseTile, splits: int) -> str:
    each = " ".join(f"sum{f} += __shfl_xor_sync({FULL_WARP}, sum{f}, step);" for f in tile.fields)
    head = f"for (int step = {splits * tile.lanes // 2}; step >= {tile.lanes}; step /= 2)"
    return f"#pragma unroll\n{head} {{\n  {each}\n}}"


def _write_blocks(choice: Choice) -> str:
    tile, splits, block = tile_of(choice), choice.integer("splits"), choice.integer("block")
    rows, cols = choice.integer("block_rows"), choice.integer("block_cols")
    width, how, placement = choice.num_dense_cols, choice.word("load"), choice.word("placement")
    threads = tile.lanes * splits
    per_block = block // threads
    number = block_number(placement)
    body = fill(
        """
int block_row = $number * $per_block + threadIdx.x / $threads;
int part = $group % $splits;
$column
int begin = 0, end = 0;
if (block_row < num_block_rows) begin = block_row_offsets[block_row], end = block_row_offsets[block_row + 1];
$V sums[$rows] = {};
#pragma unroll $unroll
for (int j = begin + part; j < end; j += $splits) {
  int col = $load_col * $cols;
  #pragma unroll
  for (int k = 0; k < $cols; k++) {
    $V right = $read;
    #pragma unroll
    for (int i = 0; i < $rows; i++) {
      $T value = $load_value;
      $fma
    }
  }
}
#pragma unroll
for (int i = 0; i < $rows; i++) {
  $V sum = sums[i];
  $reduce
  int row = block_row * $rows + i;
  if (part == i % $splits && row < num_rows$inside) $store
}
""",
        number=f"({number})" if " " in number else number,
        per_block=per_block,
        threads=threads,
        group="threadIdx.x" if tile.lanes == 1 else f"threadIdx.x / {tile.lanes}",
        splits=splits,
        column=own_column(tile, placement),
        V=tile.c_type,
        T=tile.scalar,
        rows=rows,
        cols=cols,
        unroll=choice.integer("unroll"),
        load_col=load(how, "block_col_indices + j"),
        read=tile.read(f"b + (size_t)min(col + k, num_cols - 1) * {width} + column"),
        load_value=load(how, f"values + (j * {rows} + i) * {cols} + k"),
        fma=tile.multiply_add("sums[i]", "value"),
        reduce=_reduce(tile, splits),
        inside=may_store(tile),
        store=store_vector(tile, f"c + (size_t)row * {width} + column"),
    )
    launch = Launch(
        "spmm",
        grid_of(f"ceil_div(num_block_rows,{per_block})", placement, tile),
        block,
        body,
        choice.word("registers"),
    )
    return program("spmm", choice.element_type, "bsr", {"block_rows": rows, "block_cols": cols}, launch)


def _blocks_fit(choice: Choice) -> bool:
    """Blocks of more than one entry, a block row's groups within one warp, sums in registers."""
    words = choice.integer("vector") * (2 if choice.element_type == "float64" else 1)
    several = choice.integer("block_rows") * choice.integer("block_cols") > 1
    in_warp = choice.integer("lanes") * choice.integer("splits") <= 32
    return tile_fits(choice) and several and in_warp and choice.integer("block_rows") * words <= MAX_SUMS


SPMM_BSR_SPLIT = Family(
    name="spmm_bsr_split",
    operation="spmm",
    strategy="Several groups of lanes a block row with register tiles, joined by shuffles; dense blocks in long rows.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "block_rows": OneOf(2, (2, 3, 4, 6, 8)),
        "block_cols": OneOf(2, (1, 2, 3, 4, 6)),
        "splits": OneOf(4, (2, 4, 8, 16)),
        "unroll": OneOf(2, (1, 2, 4)),
        "block": OneOf(128, (64, 128, 256)),
        "load": LOAD,
        "placement": PLACEMENT,
        "registers": REGISTERS,
    },
    suits=lambda pattern: pattern.nnz >= 4 * pattern.num_rows,
    write=_write_blocks,
    allows=_blocks_fit,
)

FAMILIES = (SPMM_BSR_SPLIT,)
