"""SpMV over blocks of consecutive rows: products staged in shared memory, then summed row by row."""

from sparsesmith.families.csr import INDEX, LOAD, REGISTERS
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import (
    BYTES,
    MAX_STATIC_SHARED_BYTES,
    Launch,
    batch,
    block_sum,
    dot,
    fill,
    program,
    scalar,
    warp_sum,
)
from sparsesmith.formats.format import OneOf, ParameterValue

MAX_ROWS = 4096


def stage(block: int, unroll: int, how: str, choice: Choice, base: str = "") -> str:
    """Stores the products of nonzeros begin..end to `products`, `block` x `unroll` of them at most."""
    return fill(
        """
int j = begin + threadIdx.x;
if (j < end) {
  $batch
  #pragma unroll
  for (int u = 0; u < $unroll; u++) products[threadIdx.x + u * $block] = value[u] * x[$column];
}
__syncthreads();
""",
        batch=batch(block, unroll, how, choice.element_type),
        unroll=unroll,
        block=block,
        column=f"{base}col[u]",
    )


def sum_mixed_rows(choice: Choice, bounds: str, first: str, last: str, store: str) -> str:
    """Sums `products` for rows first..last: a few lanes a row, and the whole warp where a row is long."""
    block, lanes = choice.integer("block"), choice.integer("lanes")
    return fill(
        """
int lane = threadIdx.x % 32;
for (int start = $first; start < $last; start += $rows) {
  $T sum = 0;
  if (to - from <= $longest)
    for (int k = from$own_lane; k < to; k += $lanes) sum += products[k - begin];
  $group_sum
  unsigned pending = __ballot_sync(0xffffffff, $long_row);
  while (pending) {
    int source = __ffs(pending) - 1;
    pending &= pending - 1;
    int stop = __shfl_sync(0xffffffff, to, source);
    $T part = 0;
    for (int k = __shfl_sync(0xffffffff, from, source) + lane; k < stop; k += 32) part += products[k - begin];
    $warp_sum
    if (lane == source) sum = part;
  }
  $store
  row += $rows;
  $bounds
}
""",
        first=first,
        last=last,
        rows=block // lanes,
        longest=32 * lanes,
        own_lane="" if lanes == 1 else f" + lane % {lanes}",
        lanes=lanes,
        long_row=f"to - from > {32 * lanes}" + leader(lanes),
        bounds=bounds,
        T=scalar(choice.element_type),
        group_sum=warp_sum(lanes),
        warp_sum=warp_sum(32, "part"),
        store=store,
    )


def row_of_thread(lanes: int) -> str:
    """First row of a thread within the block."""
    return "threadIdx.x" if lanes == 1 else f"threadIdx.x / {lanes}"


def leader(lanes: int) -> str:
    """Ends a test so that one lane of each row passes."""
    return "" if lanes == 1 else f" && lane % {lanes} == 0"


BOUNDS = "from = row_offsets[min(row, last)], to = row_offsets[min(row + 1, last)];"
"""Nonzeros of a thread's row, none past the block's rows; read before they are needed."""


def _long_row(block: int, unroll: int, choice: Choice, base: str) -> str:
    return fill(
        """
$T sum = 0;
$dot
$block_sum
return;
""",
        T=scalar(choice.element_type),
        dot=dot("begin + threadIdx.x", block, unroll, choice.word("load"), choice.element_type, base),
        block_sum=block_sum(block, "y[first]", choice.element_type, "products"),
    )


def _uniform_rows(block: int, lanes: int, choice: Choice) -> str:
    return fill(
        """
for (int start = first; start < last; start += $rows) {
  $T sum = 0;
  for (int k = from$lane; k < to; k += $lanes) sum += products[k - begin];
  $warp_sum
  if ($store) y[row] = sum;
  row += $rows;
  $bounds
}
""",
        rows=block // lanes,
        T=scalar(choice.element_type),
        lane="" if lanes == 1 else f" + threadIdx.x % {lanes}",
        lanes=lanes,
        warp_sum=warp_sum(lanes),
        store="row < last" if lanes == 1 else f"threadIdx.x % {lanes} == 0 && row < last",
        bounds=BOUNDS,
    )


def _head(choice: Choice) -> str:
    return fill(
        """
__shared__ $T products[$capacity];
int first = block_rows[blockIdx.x], last = block_rows[blockIdx.x + 1];
int begin = row_offsets[first], end = row_offsets[last];
int row = first + $thread_row;
int $bounds
$base
""",
        T=scalar(choice.element_type),
        thread_row=row_of_thread(choice.integer("lanes")),
        bounds=BOUNDS,
        capacity=choice.integer("block") * choice.integer("unroll"),
        base="int base = block_col_base[blockIdx.x];" if choice.word("index") == "u16" else "",
    )


def _base(choice: Choice) -> str:
    return "base + " if choice.word("index") == "u16" else ""


def _store(choice: Choice) -> str:
    return f"if (row < last{leader(choice.integer('lanes'))}) y[row] = sum;"


def _finish(choice: Choice, body: str) -> str:
    block = choice.integer("block")
    capacity = block * choice.integer("unroll")
    settings: dict[str, ParameterValue] = {
        "nnz_per_block": capacity,
        "max_rows": min(capacity, MAX_ROWS),
        "index": choice.word("index"),
    }
    launch = Launch("spmv", "num_blocks", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "csr_rowblocks", settings, launch)


def _write_stream(choice: Choice) -> str:
    block, unroll = choice.integer("block"), choice.integer("unroll")
    body = fill(
        """
$head
if (end - begin > $capacity) {
  $long_row
}
$stage
$rows
""",
        head=_head(choice),
        capacity=block * unroll,
        long_row=_long_row(block, unroll, choice, _base(choice)),
        stage=stage(block, unroll, choice.word("load"), choice, _base(choice)),
        rows=_uniform_rows(block, choice.integer("lanes"), choice),
    )
    return _finish(choice, body)


def _write_adaptive(choice: Choice) -> str:
    block, unroll = choice.integer("block"), choice.integer("unroll")
    body = fill(
        """
$head
if (last - first == 1) {
  $long_row
}
$stage
$rows
""",
        head=_head(choice),
        long_row=_long_row(block, unroll, choice, _base(choice)),
        stage=stage(block, unroll, choice.word("load"), choice, _base(choice)),
        rows=sum_mixed_rows(choice, BOUNDS, "first", "last", _store(choice)),
    )
    return _finish(choice, body)


def _write_binned(choice: Choice) -> str:
    block, unroll = choice.integer("block"), choice.integer("unroll")
    warp_rows = fill(
        """
int lane = threadIdx.x % 32;
for (int row = first + threadIdx.x / 32; row < last; row += $warps) {
  int begin = row_offsets[row], end = row_offsets[row + 1];
  $T sum = 0;
  $dot
  $warp_sum
  if (lane == 0) y[row] = sum;
}
return;
""",
        warps=block // 32,
        T=scalar(choice.element_type),
        dot=dot("begin + lane", 32, min(unroll, 4), choice.word("load"), choice.element_type, _base(choice)),
        warp_sum=warp_sum(32),
    )
    body = fill(
        """
$head
if (last - first == 1) {
  $long_row
}
if (end - begin > (last - first) * $warp_row_nnz) {
  $warp_rows
}
$stage
$rows
""",
        head=_head(choice),
        long_row=_long_row(block, unroll, choice, _base(choice)),
        warp_row_nnz=choice.integer("warp_row_nnz"),
        warp_rows=warp_rows,
        stage=stage(block, unroll, choice.word("load"), choice, _base(choice)),
        rows=sum_mixed_rows(choice, BOUNDS, "first", "last", _store(choice)),
    )
    return _finish(choice, body)


def products_fit_shared(choice: Choice) -> bool:
    """Whether a block's products fit static shared memory."""
    capacity = choice.integer("block") * choice.integer("unroll")
    return capacity * BYTES[choice.element_type] <= MAX_STATIC_SHARED_BYTES


FEW_LANES = OneOf(1, (1, 2, 4, 8))

_STAGING = {
    "unroll": OneOf(4, (1, 2, 4, 8, 16)),
    "block": OneOf(256, (64, 128, 256, 512)),
    "load": LOAD,
    "registers": REGISTERS,
    "index": INDEX,
}

CSR_STREAM = Family(
    name="csr_stream",
    operation="spmv",
    strategy="A block takes whole rows worth block x unroll nonzeros, stages products in shared memory, sums each row "
    "by a fixed number of lanes; short to medium rows at full bandwidth.",
    parameters={"lanes": OneOf(4, (1, 2, 4, 8, 16, 32)), **_STAGING},
    suits=lambda pattern: True,
    write=_write_stream,
    allows=products_fit_shared,
)

CSR_ADAPTIVE = Family(
    name="csr_adaptive",
    operation="spmv",
    strategy="As csr_stream, but a few lanes sum a short row, a warp a long one, a block a row alone; mixed lengths.",
    parameters={"lanes": FEW_LANES, **_STAGING},
    suits=lambda pattern: True,
    write=_write_adaptive,
    allows=products_fit_shared,
)

CSR_BINNED = Family(
    name="csr_binned",
    operation="spmv",
    strategy="Each block chooses by its rows: shared staging, a warp a row, or the block for one row; row lengths that "
    "change along the matrix.",
    parameters={"warp_row_nnz": OneOf(64, (32, 64, 128)), "lanes": FEW_LANES, **_STAGING},
    suits=lambda pattern: pattern.nnz >= 4 * pattern.num_rows,
    write=_write_binned,
    allows=products_fit_shared,
)

FAMILIES = (CSR_STREAM, CSR_ADAPTIVE, CSR_BINNED)
