"""SpMV that stores fewer indices: diagonals have none, dense blocks share one."""

import numpy as np

from sparsesmith.families.csr import LOAD, REGISTERS
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import BYTES, Launch, fill, load, program, scalar, vector, warp_sum
from sparsesmith.formats.format import OneOf
from sparsesmith.matrix.pattern import Pattern

MAX_DIAGONALS = 256
MAX_DIA_PADDING = 4
SAMPLED_NONZEROS = 4096


def dia_suits(pattern: Pattern) -> bool:
    """Counts diagonals on a sample first: most patterns have thousands and are refused at once."""
    step = max(1, pattern.nnz // SAMPLED_NONZEROS)
    sampled = np.arange(0, pattern.nnz, step)
    diagonals = np.unique(pattern.col_indices[sampled] - pattern.rows_of(sampled)).size
    return diagonals <= MAX_DIAGONALS and diagonals * pattern.num_rows <= MAX_DIA_PADDING * pattern.nnz + 4096


def _write_dia(choice: Choice) -> str:
    block, unroll, how = choice.integer("block"), choice.integer("unroll"), choice.word("load")
    body = fill(
        """
int row = blockIdx.x * $block + threadIdx.x;
if (row >= num_rows) return;
$T sum = 0;
#pragma unroll $unroll
for (int d = 0; d < num_diagonals; d++) {
  int col = row + diagonal_offsets[d];
  if (col >= 0 && col < num_cols) sum += $value * x[col];
}
y[row] = sum;
""",
        block=block,
        unroll=unroll,
        T=scalar(choice.element_type),
        value=load(how, "values + d * num_rows + row"),
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block})", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "dia", {}, launch)


def _write_dia_batched(choice: Choice) -> str:
    block, batch, how = choice.integer("block"), choice.integer("batch"), choice.word("load")
    body = fill(
        """
int row = blockIdx.x * $block + threadIdx.x;
if (row >= num_rows) return;
$T sum = 0;
#pragma unroll 1
for (int start = 0; start < num_diagonals; start += $batch) {
  $T value[$batch], right[$batch];
  #pragma unroll
  for (int u = 0; u < $batch; u++) {
    int d = min(start + u, num_diagonals - 1);
    unsigned col = row + diagonal_offsets[d];
    value[u] = $value;
    if (start + u >= num_diagonals) value[u] = 0;
    right[u] = x[min(col, num_cols - 1)];
    if (col >= num_cols) right[u] = 0;
  }
  #pragma unroll
  for (int u = 0; u < $batch; u++) sum += value[u] * right[u];
}
y[row] = sum;
""",
        block=block,
        batch=batch,
        T=scalar(choice.element_type),
        value=load(how, "values + d * num_rows + row"),
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block})", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "dia", {}, launch)


def _block_loads(size: int, choice: Choice, how: str) -> str:
    width = 16 // BYTES[choice.element_type]
    while size % width:
        width //= 2
    c_type = vector(scalar(choice.element_type), width)
    if width == 1:
        return f"#pragma unroll\nfor (int e = 0; e < {size}; e++) tile[e] = {load(how, f'values + j * {size} + e')};"
    source = f"(const {c_type}*)(values + j * {size} + e)"
    return f"#pragma unroll\nfor (int e = 0; e < {size}; e += {width}) *({c_type}*)(tile + e) = {load(how, source)};"


def _write_bsr_lanes(choice: Choice) -> str:
    block, lanes, how = choice.integer("block"), choice.integer("lanes"), choice.word("load")
    rows, cols = choice.integer("block_rows"), choice.integer("block_cols")
    body = fill(
        """
int block_row = (blockIdx.x * $block + threadIdx.x) / $lanes;
int lane = threadIdx.x % $lanes;
$T sum[$rows] = {};
if (block_row < num_block_rows) {
  int end = block_row_offsets[block_row + 1];
  for (int j = block_row_offsets[block_row] + lane; j < end; j += $lanes) {
    int col = $load_col * $cols;
    __align__(16) $T tile[$size];
    $block_loads
    #pragma unroll
    for (int k = 0; k < $cols; k++) {
      $T right = x[min(col + k, num_cols - 1)];
      if (col + k >= num_cols) right = 0;
      #pragma unroll
      for (int i = 0; i < $rows; i++) sum[i] += tile[i * $cols + k] * right;
    }
  }
}
#pragma unroll
for (int i = 0; i < $rows; i++) {
  $warp_sum
  int row = block_row * $rows + i;
  if ($store) y[row] = sum[i];
}
""",
        block=block,
        lanes=lanes,
        rows=rows,
        cols=cols,
        size=rows * cols,
        T=scalar(choice.element_type),
        load_col=load(how, "block_col_indices + j"),
        block_loads=_block_loads(rows * cols, choice, how),
        warp_sum=warp_sum(lanes, "sum[i]"),
        store="row < num_rows" if lanes == 1 else "lane == 0 && row < num_rows",
    )
    launch = Launch("spmv", f"ceil_div(num_block_rows,{block // lanes})", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "bsr", {"block_rows": rows, "block_cols": cols}, launch)


def _write_bsr_rows(choice: Choice) -> str:
    block, how = choice.integer("block"), choice.word("load")
    rows, cols = choice.integer("block_rows"), choice.integer("block_cols")
    body = fill(
        """
int row = blockIdx.x * $block + threadIdx.x;
if (row >= num_rows) return;
int begin = block_row_offsets[row / $rows], end = block_row_offsets[row / $rows + 1];
$T sum = 0;
#pragma unroll $unroll
for (int j = begin; j < end; j++) {
  int col = $load_col * $cols;
  #pragma unroll
  for (int k = 0; k < $cols; k++) {
    $T right = x[min(col + k, num_cols - 1)];
    if (col + k >= num_cols) right = 0;
    sum += $value * right;
  }
}
y[row] = sum;
""",
        block=block,
        rows=rows,
        cols=cols,
        unroll=choice.integer("unroll"),
        T=scalar(choice.element_type),
        load_col=load(how, "block_col_indices + j"),
        value=load(how, f"values + (j * {rows} + row % {rows}) * {cols} + k"),
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block})", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "bsr", {"block_rows": rows, "block_cols": cols}, launch)


EXTENT = OneOf(2, (1, 2, 3, 4, 6, 8))

DIA = Family(
    name="dia",
    operation="spmv",
    strategy="One thread a row over stored diagonals, no column indices to read; stencils and bands.",
    parameters={
        "unroll": OneOf(4, (1, 2, 4, 8)),
        "block": OneOf(128, (32, 64, 128, 256, 512)),
        "load": LOAD,
        "registers": REGISTERS,
    },
    suits=dia_suits,
    write=_write_dia,
)

DIA_BATCHED = Family(
    name="dia_batched",
    operation="spmv",
    strategy="Diagonals in batches whose loads are all in flight together; stencils, latency bound or large.",
    parameters={
        "batch": OneOf(5, (2, 3, 4, 5, 7, 8, 9, 14, 16, 27)),
        "block": OneOf(128, (32, 64, 128, 256, 512)),
        "load": LOAD,
        "registers": REGISTERS,
    },
    suits=dia_suits,
    write=_write_dia_batched,
)

BSR_LANES = Family(
    name="bsr_lanes",
    operation="spmv",
    strategy="A lane a dense block, a few lanes a block row; matrices of small dense blocks.",
    parameters={
        "block_rows": EXTENT,
        "block_cols": EXTENT,
        "lanes": OneOf(4, (1, 2, 4, 8, 16, 32)),
        "block": OneOf(128, (64, 128, 256)),
        "load": LOAD,
        "registers": REGISTERS,
    },
    suits=lambda pattern: pattern.nnz >= 2 * pattern.num_rows,
    write=_write_bsr_lanes,
    allows=lambda choice: 1 < choice.integer("block_rows") * choice.integer("block_cols") <= 36,
)

BSR_ROWS = Family(
    name="bsr_rows",
    operation="spmv",
    strategy="A thread a row of its block row, so that neighbouring threads share block and columns; many block rows.",
    parameters={
        "block_rows": EXTENT,
        "block_cols": EXTENT,
        "unroll": OneOf(2, (1, 2, 4)),
        "block": OneOf(128, (64, 128, 256, 192)),
        "load": LOAD,
        "registers": REGISTERS,
    },
    suits=lambda pattern: pattern.nnz >= 2 * pattern.num_rows,
    write=_write_bsr_rows,
    allows=lambda choice: choice.integer("block_rows") * choice.integer("block_cols") > 1,
)

FAMILIES = (DIA, DIA_BATCHED, BSR_LANES, BSR_ROWS)
