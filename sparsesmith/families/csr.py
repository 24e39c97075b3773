"""SpMV straight from CSR: a thread, a few lanes, a warp or a block for each row."""

from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import (
    BYTES,
    MAX_STATIC_SHARED_BYTES,
    Launch,
    block_sum,
    c_index_type,
    dot,
    fill,
    load,
    program,
    scalar,
    vector,
    warp_sum,
)
from sparsesmith.formats.csr import FROM_ROW
from sparsesmith.formats.format import OneOf, ParameterSpec

LOAD = OneOf("ldcs", ("ldcs", "ldg"))
"""`ldcs` streams the matrix past the caches' working set, `ldg` keeps it."""
INDEX = OneOf("i32", ("i32", "u16"))
ROW_INDEX = OneOf("i32", ("i32", "u16", "u8", "u16_row"))
"""`u16`: absolute columns. `u8` and `u16_row`: counted from the row's smallest."""
REGISTERS = OneOf("free", ("free", "few"))
"""`free` keeps all loads of a batch in flight, `few` keeps more warps resident."""
BLOCK = OneOf(256, (64, 128, 256, 512))
LANES = OneOf(8, (2, 4, 8, 16, 32))


def _row_base(choice: Choice) -> str:
    """Ends the reads that a row begins with."""
    return ", base = row_col_base[row]" if choice.word("index") in FROM_ROW else ""


def _base(choice: Choice) -> str:
    return "base + " if choice.word("index") in FROM_ROW else ""


def _dot(choice: Choice, start: str, step: int) -> str:
    """Adds a lane's share of the row to `sum`."""
    return dot(start, step, choice.integer("unroll"), choice.word("load"), choice.element_type, _base(choice))


def _write_scalar(choice: Choice) -> str:
    block = choice.integer("block")
    body = fill(
        """
int row = blockIdx.x * $block + threadIdx.x;
if (row >= num_rows) return;
int begin = row_offsets[row], end = row_offsets[row + 1]$row_base;
$T sum = 0;
$dot
y[row] = sum;
""",
        block=block,
        T=scalar(choice.element_type),
        row_base=_row_base(choice),
        dot=_dot(choice, "begin", 1),
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block})", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "csr", {"index": choice.word("index")}, launch)


def _write_vector(choice: Choice) -> str:
    block, lanes = choice.integer("block"), choice.integer("lanes")
    body = fill(
        """
int row = (blockIdx.x * $block + threadIdx.x) / $lanes;
int lane = threadIdx.x % $lanes;
$T sum = 0;
if (row < num_rows) {
  int begin = row_offsets[row], end = row_offsets[row + 1]$row_base;
  $dot
}
$warp_sum
if (lane == 0 && row < num_rows) y[row] = sum;
""",
        block=block,
        lanes=lanes,
        T=scalar(choice.element_type),
        row_base=_row_base(choice),
        dot=_dot(choice, "begin + lane", lanes),
        warp_sum=warp_sum(lanes),
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block // lanes})", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "csr", {"index": choice.word("index")}, launch)


def _write_vector_persistent(choice: Choice) -> str:
    block, lanes = choice.integer("block"), choice.integer("lanes")
    body = fill(
        """
int lane = threadIdx.x % $lanes;
for (int start = blockIdx.x * $rows; start < num_rows; start += gridDim.x * $rows) {
  int row = start + threadIdx.x / $lanes;
  $T sum = 0;
  if (row < num_rows) {
    int begin = row_offsets[row], end = row_offsets[row + 1]$row_base;
    $dot
  }
  $warp_sum
  if (lane == 0 && row < num_rows) y[row] = sum;
}
""",
        rows=block // lanes,
        lanes=lanes,
        T=scalar(choice.element_type),
        row_base=_row_base(choice),
        dot=_dot(choice, "begin + lane", lanes),
        warp_sum=warp_sum(lanes),
    )
    grid = f"min(ceil_div(num_rows,{block // lanes}),num_sms*{choice.integer('blocks_per_sm')})"
    launch = Launch("spmv", grid, block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "csr", {"index": choice.word("index")}, launch)


def _wide_lines(width: int, base: str) -> str:
    return "\n".join(f"sum += value.{field} * x[{base}col.{field}];" for field in "xyzw"[:width])


def _write_vector_wide(choice: Choice) -> str:
    block, lanes = choice.integer("block"), choice.integer("lanes")
    width = 16 // BYTES[choice.element_type]
    c_index = c_index_type(choice.word("index"))
    body = fill(
        """
int row = (blockIdx.x * $block + threadIdx.x) / $lanes;
int lane = threadIdx.x % $lanes;
$T sum = 0;
if (row < num_rows) {
  int begin = row_offsets[row], end = row_offsets[row + 1]$row_base;
  for (int j = begin / $width * $width + lane * $width; j < end; j += $step) {
    if (j >= begin && j + $width <= end) {
      $I col = $load_col;
      $V value = $load_value;
      $lines
    } else {
      for (int k = max(j, begin); k < min(j + $width, end); k++) sum += values[k] * x[$base$col];
    }
  }
}
$warp_sum
if (lane == 0 && row < num_rows) y[row] = sum;
""",
        block=block,
        lanes=lanes,
        width=width,
        step=lanes * width,
        T=scalar(choice.element_type),
        I=vector(c_index, width),
        V=vector(scalar(choice.element_type), width),
        load_col=load(choice.word("load"), f"(const {vector(c_index, width)}*)(col_indices + j)"),
        load_value=load(choice.word("load"), f"(const {vector(scalar(choice.element_type), width)}*)(values + j)"),
        lines=_wide_lines(width, _base(choice)),
        row_base=_row_base(choice),
        base=_base(choice),
        col="col_indices[k]",
        warp_sum=warp_sum(lanes),
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block // lanes})", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "csr", {"index": choice.word("index")}, launch)


def _write_block(choice: Choice) -> str:
    block = choice.integer("block")
    body = fill(
        """
$partials
int row = blockIdx.x;
int begin = row_offsets[row], end = row_offsets[row + 1]$row_base;
$T sum = 0;
$dot
$block_sum
""",
        partials="" if block == 32 else f"__shared__ {scalar(choice.element_type)} partials[{block // 32}];",
        T=scalar(choice.element_type),
        row_base=_row_base(choice),
        dot=_dot(choice, "begin + threadIdx.x", block),
        block_sum=block_sum(block, "y[row]", choice.element_type),
    )
    launch = Launch("spmv", "num_rows", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "csr", {"index": choice.word("index")}, launch)


def _write_shared_x(choice: Choice) -> str:
    block, lanes = choice.integer("block"), choice.integer("lanes")
    body = fill(
        """
__shared__ $T shared_x[$capacity];
for (int i = threadIdx.x; i < num_cols; i += $block) shared_x[i] = x[i];
__syncthreads();
int lane = threadIdx.x % $lanes;
for (int start = blockIdx.x * $rows; start < num_rows; start += gridDim.x * $rows) {
  int row = start + threadIdx.x / $lanes;
  $T sum = 0;
  if (row < num_rows) {
    int begin = row_offsets[row], end = row_offsets[row + 1]$row_base;
    $dot
  }
  $warp_sum
  if (lane == 0 && row < num_rows) y[row] = sum;
}
""",
        capacity=choice.integer("capacity"),
        block=block,
        rows=block // lanes,
        lanes=lanes,
        T=scalar(choice.element_type),
        row_base=_row_base(choice),
        dot=_dot(choice, "begin + lane", lanes).replace("* x[", "* shared_x["),
        warp_sum=warp_sum(lanes),
    )
    grid = f"min(ceil_div(num_rows,{block // lanes}),num_sms*{choice.integer('blocks_per_sm')})"
    launch = Launch("spmv", grid, block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "csr", {"index": choice.word("index")}, launch)


def _x_fits_shared(choice: Choice) -> bool:
    return choice.integer("capacity") * BYTES[choice.element_type] <= MAX_STATIC_SHARED_BYTES


_LANE_PARAMETERS: dict[str, ParameterSpec] = {
    "lanes": LANES,
    "unroll": OneOf(2, (1, 2, 4, 8)),
    "block": BLOCK,
    "load": LOAD,
    "registers": REGISTERS,
    "index": ROW_INDEX,
}

CSR_SCALAR = Family(
    name="csr_scalar",
    operation="spmv",
    strategy="One thread a row; short rows of one length, and matrices so small that only latency counts.",
    parameters={
        "unroll": OneOf(4, (1, 2, 4, 8, 16)),
        "block": OneOf(128, (32, 64, 128, 256)),
        "load": LOAD,
        "registers": REGISTERS,
        "index": ROW_INDEX,
    },
    suits=lambda pattern: True,
    write=_write_scalar,
)

CSR_VECTOR = Family(
    name="csr_vector",
    operation="spmv",
    strategy="A few lanes a row with a shuffle reduction; rows of like length that are longer than a few nonzeros.",
    parameters=_LANE_PARAMETERS,
    suits=lambda pattern: pattern.num_rows < 2**26,
    write=_write_vector,
)

CSR_VECTOR_PERSISTENT = Family(
    name="csr_vector_persistent",
    operation="spmv",
    strategy="Lanes a row with a grid that stays on the device and strides over the rows; many rows of like length.",
    parameters={**_LANE_PARAMETERS, "blocks_per_sm": OneOf(8, (2, 4, 8, 16))},
    suits=lambda pattern: 4096 <= pattern.num_rows < 2**26,
    write=_write_vector_persistent,
)

CSR_VECTOR_WIDE = Family(
    name="csr_vector_wide",
    operation="spmv",
    strategy="Lanes a row with aligned 128-bit loads of values and columns; long rows.",
    parameters={
        "lanes": OneOf(16, (4, 8, 16, 32)),
        "block": BLOCK,
        "load": LOAD,
        "registers": REGISTERS,
        "index": ROW_INDEX,
    },
    suits=lambda pattern: pattern.nnz >= 16 * pattern.num_rows and pattern.num_rows < 2**26,
    write=_write_vector_wide,
)

CSR_BLOCK = Family(
    name="csr_block",
    operation="spmv",
    strategy="A whole block a row; few rows with hundreds of nonzeros or more.",
    parameters={
        "unroll": OneOf(4, (1, 2, 4, 8)),
        "block": OneOf(128, (32, 64, 128, 256, 512, 1024)),
        "load": LOAD,
        "registers": REGISTERS,
        "index": ROW_INDEX,
    },
    suits=lambda pattern: pattern.nnz >= 48 * pattern.num_rows,
    write=_write_block,
)

CSR_SHARED_X = Family(
    name="csr_shared_x",
    operation="spmv",
    strategy="x is copied to shared memory by a resident grid; few columns that are gathered many times.",
    parameters={
        "capacity": OneOf(4096, (512, 1024, 2048, 3072, 4096, 6144, 8192, 12288)),
        "lanes": LANES,
        "unroll": OneOf(2, (1, 2, 4, 8)),
        "block": OneOf(512, (256, 512, 1024)),
        "blocks_per_sm": OneOf(2, (1, 2, 4)),
        "load": LOAD,
        "registers": REGISTERS,
        "index": ROW_INDEX,
    },
    suits=lambda pattern: pattern.num_cols <= 12288 and pattern.nnz >= 8 * pattern.num_cols,
    write=_write_shared_x,
    allows=_x_fits_shared,
)

FAMILIES = (CSR_SCALAR, CSR_VECTOR, CSR_VECTOR_PERSISTENT, CSR_VECTOR_WIDE, CSR_BLOCK, CSR_SHARED_X)
