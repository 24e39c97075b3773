"""SpMV with the popular part of x in shared memory: a resident grid, a segmented sum across each warp."""

from sparsesmith.families.csr import LOAD, REGISTERS
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import BYTES, Launch, fill, load, program, scalar, vector
from sparsesmith.formats.format import OneOf
from sparsesmith.program.directives import MAX_SHARED_BYTES

MIN_NNZ = 200_000

PREPARE = """
int i = blockIdx.x * 256 + threadIdx.x;
if (i < num_rows) y[i] = 0;
if (i < num_hubs) hub_x[i] = x[hub_columns[i]];
""".strip()

SPMV = """
extern __shared__ $T hubs[];
int lane = threadIdx.x % 32, share = (num_segments - 1) / (gridDim.x * $warps) + 1;
int segment = (blockIdx.x * $warps + threadIdx.x / 32) * share, last = min(segment + share, num_segments);
__align__(16) int col[$items];
__align__(16) $T value[$items];
unsigned word, shift = lane * $items % 32;
int rank;
auto fetch = [&](int next) {
  int slot = min(next, num_segments - 1) * $slots + lane * $items;
  $cols
  $values
  word = row_starts[slot / 32];
  rank = row_ranks[slot / 32];
};
fetch(segment);
#pragma unroll 8
for (int i = threadIdx.x * $width; i < num_hubs; i += $stride) *($V*)(hubs + i) = *(const $V*)(hub_x + i);
__syncthreads();
if (segment >= last) return;
int opened = __shfl_sync(0xffffffff, rank, 0) - 1, row = 0;
$T sum = 0, carry = 0;
#pragma unroll 1
for (; segment < last; segment++) {
  $T product[$items], head = 0;
  #pragma unroll
  for (int k = 0; k < $items; k++) product[k] = value[k] * (col[k] < num_hubs ? hubs[col[k]] : x[col[k] - num_hubs]);
  unsigned starts = word >> shift & $mask;
  row = rank + __popc(word & ((1u << shift) - 1)) - 1;
  fetch(segment + 1);
  int entered = row;
  sum = 0;
  #pragma unroll
  for (int k = 0; k < $items; k++) {
    bool start = starts >> k & 1;
    if (start && row > entered) y[row] = sum;
    if (start && row == entered) head = sum;
    row += start;
    sum = start ? product[k] : sum + product[k];
  }
  if (lane == 0 && starts == 0) sum += carry;
  int nearest = max(31 - __clz(__ballot_sync(0xffffffff, starts != 0) & ((2u << lane) - 1)), 0);
  #pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    $T other = __shfl_up_sync(0xffffffff, sum, step);
    if (lane - step >= nearest) sum += other;
  }
  $T before = __shfl_up_sync(0xffffffff, sum, 1);
  head += lane == 0 ? carry : before;
  if (starts != 0 && entered > opened) y[entered] = head;
  else if (starts != 0 && entered >= 0) atomicAdd(y + entered, head);
  carry = __shfl_sync(0xffffffff, sum, 31);
}
if (lane == 31) atomicAdd(y + row, sum);
"""


def _write(choice: Choice) -> str:
    block, items = choice.integer("block"), choice.integer("items")
    element_bytes, c_type = BYTES[choice.element_type], scalar(choice.element_type)
    body = fill(
        SPMV,
        T=c_type,
        V=vector(c_type, 16 // element_bytes),
        width=16 // element_bytes,
        stride=block * 16 // element_bytes,
        warps=block // 32,
        items=items,
        slots=32 * items,
        mask=hex((1 << items) - 1),
        cols=_vector_copies(choice, "col", "col_indices", "int", min(items, 4)),
        values=_vector_copies(choice, "value", "values", c_type, min(items, 16 // element_bytes)),
    )
    return program(
        "spmv",
        choice.element_type,
        "hubs",
        {"hub_cols": choice.integer("hub_cols"), "items": items},
        Launch("prepare", "ceil_div(max(num_rows,num_hubs),256)", 256, PREPARE),
        Launch("spmv", "num_sms", block, body, choice.word("registers"), f"ceil_div(num_hubs,4)*{4 * element_bytes}"),
    )


def _vector_copies(choice: Choice, array: str, source: str, c_type: str, width: int) -> str:
    wide = vector(c_type, width)
    return "\n".join(
        f"*({wide}*)({array} + {k}) = {load(choice.word('load'), f'(const {wide}*)({source} + slot + {k})')};"
        for k in range(0, choice.integer("items"), width)
    )


def _fits_shared(choice: Choice) -> bool:
    return choice.integer("hub_cols") * BYTES[choice.element_type] <= MAX_SHARED_BYTES


HUBS = Family(
    name="hubs",
    operation="spmv",
    strategy="x of the most popular columns in shared memory of a resident grid, other columns gathered, segmented "
    "sums across warps; large graphs with power laws.",
    parameters={
        "hub_cols": OneOf(32768, (4096, 8192, 16384, 24576, 28672, 32768, 40960, 49152, 57344)),
        "items": OneOf(8, (4, 8)),
        "block": OneOf(1024, (512, 768, 1024)),
        "load": LOAD,
        "registers": REGISTERS,
    },
    suits=lambda pattern: pattern.nnz >= MIN_NNZ,
    write=_write,
    allows=_fits_shared,
)

FAMILIES = (HUBS,)
