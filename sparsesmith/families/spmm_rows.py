"""SpMM from CSR, row by row: a group of lanes for each row, lanes over the dense columns."""

from sparsesmith.families.csr import INDEX, LOAD, REGISTERS
from sparsesmith.families.dense_tiles import (
    ONE_CHUNK_PARAMETERS,
    TILE_PARAMETERS,
    DenseTile,
    add_batch,
    tile_fits,
    tile_of,
)
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.row_blocks import MAX_ROWS
from sparsesmith.families.source import (
    BYTES,
    MAX_STATIC_SHARED_BYTES,
    Launch,
    batch,
    fill,
    load,
    program,
    scalar,
)
from sparsesmith.formats.format import OneOf, ParameterSpec, ParameterValue

BLOCK = OneOf(128, (64, 128, 256))


def walk_row(tile: DenseTile, choice: Choice, unroll: int) -> str:
    """Adds nonzeros begin..end to `sum`, `unroll` at a time."""
    how = choice.word("load")
    if unroll == 1:
        return fill(
            """
for (int j = begin; j < end; j++) {
  int col = $col;
  $T value = $value;
  $add
}
""",
            T=scalar(choice.element_type),
            col=load(how, "col_indices + j"),
            value=load(how, "values + j"),
            add=tile.add("value", "col"),
        )
    return fill(
        """
#pragma unroll 1
for (int j = begin; j < end; j += $unroll) {
  $batch
  $add
}
""",
        unroll=unroll,
        batch=batch(1, unroll, how, choice.element_type),
        add=add_batch(tile, unroll),
    )


def _write_rows(choice: Choice) -> str:
    block, tile = choice.integer("block"), tile_of(choice)
    body = fill(
        """
int row = (blockIdx.x * $block + threadIdx.x) / $lanes;
int column = $column;
if (row >= num_rows$guard) return;
int begin = row_offsets[row], end = row_offsets[row + 1];
$declare
$walk
$store
""",
        block=block,
        lanes=tile.lanes,
        column=tile.column,
        guard=tile.guard,
        declare=tile.declare(),
        walk=walk_row(tile, choice, choice.integer("unroll")),
        store=tile.store(f"c + (size_t)row * {choice.num_dense_cols}"),
    )
    launch = Launch(
        "spmm", f"ceil_div(num_rows,{block // tile.lanes}){tile.grid}", block, body, choice.word("registers")
    )
    return program("spmm", choice.element_type, "csr", {"index": choice.word("index")}, launch)


def _write_shuffle(choice: Choice) -> str:
    block, tile, how = choice.integer("block"), tile_of(choice), choice.word("load")
    lanes = tile.lanes
    mask = "0xffffffff" if lanes == 32 else f"{(1 << lanes) - 1:#x}u << threadIdx.x % 32 / {lanes} * {lanes}"
    body = fill(
        """
int row = (blockIdx.x * $block + threadIdx.x) / $lanes;
int lane = threadIdx.x % $lanes;
int column = $column;
if (row >= num_rows) return;
unsigned group = $mask;
int begin = row_offsets[row], end = row_offsets[row + 1];
$declare
for (int start = begin; start < end; start += $lanes) {
  int j = min(start + lane, end - 1);
  int own_col = $load_col;
  $T own_value = $load_value;
  if (start + lane >= end) own_value = 0;
  int count = min(end - start, $lanes);
  #pragma unroll 1
  for (int k = 0; k < count; k += $unroll) {
    #pragma unroll
    for (int u = 0; u < $unroll; u++) {
      int col = __shfl_sync(group, own_col, k + u, $lanes);
      $T value = __shfl_sync(group, own_value, k + u, $lanes);
      $add
    }
  }
}
$store
""",
        block=block,
        lanes=lanes,
        column=tile.column,
        mask=mask,
        declare=tile.declare(),
        load_col=load(how, "col_indices + j"),
        load_value=load(how, "values + j"),
        T=tile.scalar,
        unroll=choice.integer("unroll"),
        add=tile.add("value", "col"),
        store=tile.store(f"c + (size_t)row * {choice.num_dense_cols}"),
    )
    launch = Launch("spmm", f"ceil_div(num_rows,{block // lanes}){tile.grid}", block, body, choice.word("registers"))
    return program("spmm", choice.element_type, "csr", {"index": choice.word("index")}, launch)


def _long_row(choice: Choice, tile: DenseTile, base: str) -> str:
    """All groups share one row and join their sums in shared memory."""
    groups = choice.integer("block") // tile.lanes
    how = choice.word("load")
    return fill(
        """
__shared__ $V partials[$block];
$declare
#pragma unroll $unroll
for (int j = begin + threadIdx.x / $lanes; j < end; j += $groups) {
  int col = $load_col;
  $T value = $load_value;
  $add
}
partials[threadIdx.x] = sum;
__syncthreads();
if (threadIdx.x < $lanes) {
  for (int g = 1; g < $groups; g++) {
    $V part = partials[g * $lanes + threadIdx.x];
    $join
  }
  $store
}
return;
""",
        V=tile.c_type,
        block=choice.integer("block"),
        declare=tile.declare(),
        unroll=choice.integer("unroll"),
        lanes=tile.lanes,
        groups=groups,
        T=tile.scalar,
        load_col=base + load(how, "col_indices + j"),
        load_value=load(how, "values + j"),
        add=tile.add("value", "col"),
        join=" ".join(f"sum{field} += part{field};" for field in tile.fields),
        store=tile.store(f"c + (size_t)first * {choice.num_dense_cols}"),
    )


def _write_staged(choice: Choice) -> str:
    block, tile, how = choice.integer("block"), tile_of(choice), choice.word("load")
    narrow = choice.word("index") == "u16"
    base = "base + " if narrow else ""
    body = fill(
        """
__shared__ int cols[$capacity];
__shared__ $T factors[$capacity];
int first = block_rows[blockIdx.x], last = block_rows[blockIdx.x + 1];
int begin = row_offsets[first], end = row_offsets[last];
$load_base
int column = $column;
if (last - first == 1) {
  $long_row
}
for (int j = begin + threadIdx.x; j < end; j += $block) {
  cols[j - begin] = $load_col;
  factors[j - begin] = $load_value;
}
__syncthreads();
for (int row = first + threadIdx.x / $lanes; row < last; row += $groups) {
  int from = row_offsets[row] - begin, to = row_offsets[row + 1] - begin;
  $declare
  #pragma unroll 1
  for (int k = from; k < to; k += $unroll) {
    #pragma unroll
    for (int u = 0; u < $unroll; u++) {
      int col = cols[min(k + u, to - 1)];
      $T value = factors[min(k + u, to - 1)];
      if (k + u >= to) value = 0;
      $add
    }
  }
  $store
}
""",
        capacity=choice.integer("nnz_per_block"),
        T=tile.scalar,
        load_base="int base = block_col_base[blockIdx.x];" if narrow else "",
        column=tile.column,
        long_row=_long_row(choice, tile, base),
        block=block,
        load_col=base + load(how, "col_indices + j"),
        load_value=load(how, "values + j"),
        lanes=tile.lanes,
        groups=block // tile.lanes,
        declare=tile.declare(),
        unroll=choice.integer("unroll"),
        add=tile.add("value", "col"),
        store=tile.store(f"c + (size_t)row * {choice.num_dense_cols}"),
    )
    nnz_per_block = choice.integer("nnz_per_block")
    settings: dict[str, ParameterValue] = {
        "nnz_per_block": nnz_per_block,
        "max_rows": min(nnz_per_block, MAX_ROWS),
        "index": choice.word("index"),
    }
    launch = Launch("spmm", f"num_blocks{tile.grid}", block, body, choice.word("registers"))
    return program("spmm", choice.element_type, "csr_rowblocks", settings, launch)


def _tile_fits_exactly(choice: Choice) -> bool:
    return tile_fits(choice) and not tile_of(choice).guard


def _staged_fits(choice: Choice) -> bool:
    """Even tiles, and shared memory for the staged nonzeros and the partial sums."""
    size = BYTES[choice.element_type]
    shared = choice.integer("nnz_per_block") * (4 + size) + choice.integer("block") * choice.integer("vector") * size
    return _tile_fits_exactly(choice) and shared <= MAX_STATIC_SHARED_BYTES


_WALK_PARAMETERS: dict[str, ParameterSpec] = {
    "unroll": OneOf(4, (1, 2, 4, 8)),
    "block": BLOCK,
    "load": LOAD,
    "registers": REGISTERS,
    "index": INDEX,
}
_ROW_PARAMETERS = {**TILE_PARAMETERS, **_WALK_PARAMETERS}

SPMM_ROWS = Family(
    name="spmm_rows",
    operation="spmm",
    strategy="A group of lanes a row, vectors of dense columns a lane, batches of gathers in flight; the workhorse.",
    parameters=_ROW_PARAMETERS,
    suits=lambda pattern: pattern.num_rows < 2**26,
    write=_write_rows,
    allows=tile_fits,
)

SPMM_ROWS_SHUFFLE = Family(
    name="spmm_rows_shuffle",
    operation="spmm",
    strategy="As spmm_rows, with nonzeros loaded by the group side by side and passed round by shuffles; long rows.",
    parameters=_ROW_PARAMETERS,
    suits=lambda pattern: pattern.num_rows < 2**26 and pattern.nnz >= 4 * pattern.num_rows,
    write=_write_shuffle,
    allows=lambda choice: _tile_fits_exactly(choice) and choice.integer("lanes") >= max(4, choice.integer("unroll")),
)

SPMM_ROWS_STAGED = Family(
    name="spmm_rows_staged",
    operation="spmm",
    strategy="A block stages whole rows in shared memory and shares a long row among all its groups; short rows with "
    "some long ones.",
    parameters={**ONE_CHUNK_PARAMETERS, **_WALK_PARAMETERS, "nnz_per_block": OneOf(512, (128, 256, 512, 1024, 2048))},
    suits=lambda pattern: True,
    write=_write_staged,
    allows=_staged_fits,
)

FAMILIES = (SPMM_ROWS, SPMM_ROWS_SHUFFLE, SPMM_ROWS_STAGED)
