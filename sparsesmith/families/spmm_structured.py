"""SpMM that reuses rows of the dense operand: dense blocks, diagonals, sorted slices, panels in shared memory."""

from sparsesmith.families.csr import INDEX, LOAD, REGISTERS
from sparsesmith.families.dense_tiles import ONE_CHUNK_PARAMETERS, TILE_PARAMETERS, tile_fits, tile_of
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import BYTES, Launch, fill, load, program
from sparsesmith.families.structured import dia_suits
from sparsesmith.formats.format import OneOf, ParameterValue

BLOCK = OneOf(128, (64, 128, 256))


def _write_bsr(choice: Choice) -> str:
    block, tile, how = choice.integer("block"), tile_of(choice), choice.word("load")
    rows, cols = choice.integer("block_rows"), choice.integer("block_cols")
    width = choice.num_dense_cols
    body = fill(
        """
int block_row = (blockIdx.x * $block + threadIdx.x) / $lanes;
int column = $column;
if (block_row >= num_block_rows$guard) return;
int begin = block_row_offsets[block_row], end = block_row_offsets[block_row + 1];
$V sum[$rows] = {};
#pragma unroll $unroll
for (int j = begin; j < end; j++) {
  int col = $load_col * $cols;
  #pragma unroll
  for (int k = 0; k < $cols; k++) {
    $V right = $read;
    if (col + k >= num_cols) right = $zero;
    #pragma unroll
    for (int i = 0; i < $rows; i++) {
      $T value = $load_value;
      $fma
    }
  }
}
#pragma unroll
for (int i = 0; i < $rows; i++) {
  int row = block_row * $rows + i;
  if (row < num_rows) $place = sum[i];
}
""",
        place=tile.place(f"c + (size_t)row * {width} + column"),
        block=block,
        lanes=tile.lanes,
        column=tile.column,
        guard=tile.guard,
        V=tile.c_type,
        T=tile.scalar,
        rows=rows,
        cols=cols,
        width=width,
        unroll=choice.integer("unroll"),
        load_col=load(how, "block_col_indices + j"),
        read=tile.read(f"b + (size_t)min(col + k, num_cols - 1) * {width} + column"),
        load_value=load(how, f"values + (j * {rows} + i) * {cols} + k"),
        zero=tile.zero,
        fma=tile.multiply_add("sum[i]", "value"),
    )
    launch = Launch(
        "spmm", f"ceil_div(num_block_rows,{block // tile.lanes}){tile.grid}", block, body, choice.word("registers")
    )
    return program("spmm", choice.element_type, "bsr", {"block_rows": rows, "block_cols": cols}, launch)


def _write_dia(choice: Choice) -> str:
    block, tile, how = choice.integer("block"), tile_of(choice), choice.word("load")
    body = fill(
        """
int row = (blockIdx.x * $block + threadIdx.x) / $lanes;
int column = $column;
if (row >= num_rows$guard) return;
$declare
#pragma unroll 1
for (int start = 0; start < num_diagonals; start += $unroll) {
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    int d = min(start + u, num_diagonals - 1);
    unsigned col = row + diagonal_offsets[d];
    $T value = $load_value;
    if (start + u >= num_diagonals) value = 0;
    $add
  }
}
$store
""",
        block=block,
        lanes=tile.lanes,
        column=tile.column,
        guard=tile.guard,
        declare=tile.declare(),
        unroll=choice.integer("unroll"),
        T=tile.scalar,
        load_value=load(how, "values + d * num_rows + row"),
        add=tile.add("value", "min(col, num_cols - 1)", absent="col >= num_cols"),
        store=tile.store(f"c + (size_t)row * {choice.num_dense_cols}"),
    )
    launch = Launch(
        "spmm", f"ceil_div(num_rows,{block // tile.lanes}){tile.grid}", block, body, choice.word("registers")
    )
    return program("spmm", choice.element_type, "dia", {}, launch)


def _write_sell(choice: Choice) -> str:
    block, tile, how = choice.integer("block"), tile_of(choice), choice.word("load")
    slice_, sigma, narrow = choice.integer("slice"), choice.integer("sigma"), choice.word("index") == "u16"
    body = fill(
        """
int slot = (blockIdx.x * $block + threadIdx.x) / $lanes;
int column = $column;
int slice = slot / $slice;
if (slice >= num_slices$guard) return;
int row = $row;
int begin = slice_offsets[slice] + slot % $slice, end = slice_offsets[slice + 1];
$base
$declare
#pragma unroll 1
for (int start = begin; start < end; start += $stride) {
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    int j = start + u * $slice < end ? start + u * $slice : start;
    int col = $load_col;
    $T value = $load_value;
    if (start + u * $slice >= end) value = 0;
    $add
  }
}
if ($has_row) {
  $store
}
""",
        block=block,
        lanes=tile.lanes,
        column=tile.column,
        slice=slice_,
        guard=tile.guard,
        row="slot" if sigma == 1 else "row_permutation[slot]",
        stride=slice_ * choice.integer("unroll"),
        has_row="row < num_rows" if sigma == 1 else "row >= 0",
        base="int base = slice_col_base[slice];" if narrow else "",
        declare=tile.declare(),
        unroll=choice.integer("unroll"),
        T=tile.scalar,
        load_col=("base + " if narrow else "") + load(how, "col_indices + j"),
        load_value=load(how, "values + j"),
        add=tile.add("value", "col"),
        store=tile.store(f"c + (size_t)row * {choice.num_dense_cols}"),
    )
    grid = f"ceil_div(num_slices*{slice_},{block // tile.lanes}){tile.grid}"
    settings: dict[str, ParameterValue] = {"slice": slice_, "sigma": sigma, "index": choice.word("index")}
    return program(
        "spmm", choice.element_type, "sell", settings, Launch("spmm", grid, block, body, choice.word("registers"))
    )


def _write_panel(choice: Choice) -> str:
    block, tile = choice.integer("block"), tile_of(choice)
    panel, rows = choice.integer("panel"), choice.integer("rows")
    groups = block // tile.lanes
    width = choice.num_dense_cols
    body = fill(
        """
__shared__ __align__(16) $T shared_b[$elements];
int column = $own_column;
int first = blockIdx.x * $block_rows + threadIdx.x / $lanes;
int j[$rows], end[$rows], next[$rows];
$V sum[$rows] = {};
#pragma unroll
for (int i = 0; i < $rows; i++) {
  int row = first + i * $groups;
  j[i] = row < num_rows ? row_offsets[row] : 0;
  end[i] = row < num_rows ? row_offsets[row + 1] : 0;
  next[i] = j[i] < end[i] ? col_indices[j[i]] : num_cols;
}
for (int start = 0; start < num_cols; start += $panel) {
  int stop = min(start + $panel, num_cols);
  __syncthreads();
  for (int i = threadIdx.x * $vector; i < (stop - start) * $tile; i += $copy_step)
    *($V*)(shared_b + i) = *(const $V*)(b + $source);
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < $rows; i++) {
    while (next[i] < stop) {
      $T value = values[j[i]++];
      $V right = *($V*)(shared_b + (next[i] - start) * $tile + column);
      next[i] = j[i] < end[i] ? col_indices[j[i]] : num_cols;
      $fma
    }
  }
}
#pragma unroll
for (int i = 0; i < $rows; i++) {
  int row = first + i * $groups;
  if (row < num_rows) *($V*)(c + (size_t)row * $width + $tile_start + column) = sum[i];
}
""",
        T=tile.scalar,
        V=tile.c_type,
        elements=panel * tile.width,
        own_column=f"threadIdx.x % {tile.lanes} * {tile.vector}",
        block_rows=groups * rows,
        lanes=tile.lanes,
        rows=rows,
        groups=groups,
        panel=panel,
        vector=tile.vector,
        tile=tile.width,
        copy_step=block * tile.vector,
        source=f"(size_t)start * {width} + i"
        if tile.width == width
        else f"(size_t)(start + i / {tile.width}) * {width} + blockIdx.y * {tile.width} + i % {tile.width}",
        fma=tile.multiply_add("sum[i]", "value"),
        width=width,
        tile_start=f"blockIdx.y * {tile.width}" if tile.grid else "0",
    ).replace(" + 0 + column", " + column")
    launch = Launch("spmm", f"ceil_div(num_rows,{groups * rows}){tile.grid}", block, body, choice.word("registers"))
    return program("spmm", choice.element_type, "csr", {"index": choice.word("index")}, launch)


def _panel_fits(choice: Choice) -> bool:
    tile = tile_of(choice)
    shared = choice.integer("panel") * tile.width * BYTES[choice.element_type]
    return tile_fits(choice) and choice.num_dense_cols % tile.width == 0 and shared <= 48 * 1024


SPMM_BSR = Family(
    name="spmm_bsr",
    operation="spmm",
    strategy="A group a block row with a register tile, so that each row of B is read once for all rows of a block.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "block_rows": OneOf(2, (1, 2, 3, 4, 6, 8)),
        "block_cols": OneOf(2, (1, 2, 3, 4, 6, 8)),
        "unroll": OneOf(2, (1, 2, 4)),
        "block": BLOCK,
        "load": LOAD,
        "registers": REGISTERS,
    },
    suits=lambda pattern: pattern.nnz >= 2 * pattern.num_rows,
    write=_write_bsr,
    allows=lambda choice: (
        tile_fits(choice)
        and choice.integer("block_rows") * choice.integer("block_cols") > 1
        and choice.integer("block_rows") * choice.integer("vector") <= 32
    ),
)

SPMM_DIA = Family(
    name="spmm_dia",
    operation="spmm",
    strategy="A group a row over stored diagonals, no column indices to wait for; stencils and bands.",
    parameters={
        **TILE_PARAMETERS,
        "unroll": OneOf(4, (1, 2, 4, 8)),
        "block": BLOCK,
        "load": LOAD,
        "registers": REGISTERS,
    },
    suits=dia_suits,
    write=_write_dia,
    allows=tile_fits,
)

SPMM_SELL = Family(
    name="spmm_sell",
    operation="spmm",
    strategy="A group a row of a slice, rows sorted so that a warp's groups finish together; uneven short rows.",
    parameters={
        **TILE_PARAMETERS,
        "slice": OneOf(8, (4, 8, 16, 32)),
        "sigma": OneOf(256, (1, 64, 256, 1024, 4096, 16384, 0)),
        "unroll": OneOf(4, (1, 2, 4, 8)),
        "block": BLOCK,
        "load": LOAD,
        "registers": REGISTERS,
        "index": INDEX,
    },
    suits=lambda pattern: True,
    write=_write_sell,
    allows=tile_fits,
)

SPMM_PANEL = Family(
    name="spmm_panel",
    operation="spmm",
    strategy="A block keeps sums of many rows in registers and walks panels of B through shared memory; nearly dense "
    "matrices such as pruned layers.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "panel": OneOf(64, (16, 32, 64, 128, 256)),
        "rows": OneOf(4, (1, 2, 4, 8)),
        "block": OneOf(256, (128, 256, 512)),
        "registers": REGISTERS,
        "index": INDEX,
    },
    suits=lambda pattern: pattern.nnz >= 0.01 * pattern.num_rows * pattern.num_cols and pattern.num_cols <= 65536,
    write=_write_panel,
    allows=_panel_fits,
)

FAMILIES = (SPMM_BSR, SPMM_DIA, SPMM_SELL, SPMM_PANEL)
