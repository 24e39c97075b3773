"""SpMV by column panels: x of a panel in shared memory, products handed on to bins of rows in a second launch."""

from sparsesmith.families.csr import LOAD, REGISTERS
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import BYTES, Launch, fill, program, scalar, vector, warp_sum
from sparsesmith.formats.format import OneOf
from sparsesmith.program.directives import MAX_SHARED_BYTES

MIN_NNZ = 200_000

ROUND = """
int round = gridDim.y - 1;
if (blockIdx.y < round) return;
""".strip()
"""Launch number r has r + 1 rows of blocks, of which the last works."""

MULTIPLY = """
extern __shared__ $T segment[];
$round
for (int b = blockIdx.x * $block + threadIdx.x; b < num_bins; b += num_parts * $block)
  if (cut_rows[${first_bin}b] >= 0) y[cut_rows[${first_bin}b]] = 0;
int part = ${first_part}blockIdx.x, begin = part_offsets[part], end = part_offsets[part + 1];
if (begin == end) return;
$I col[$unroll];
$V value[$unroll];
auto fetch = [&](int j) {
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    int k = min(j + u * $step, end - $width);
    col[u] = __$load((const $I*)(col_indices + k));
    value[u] = __$load((const $V*)(values + k));
  }
};
fetch(begin + threadIdx.x * $width);
int base = part_panels[part] * $panel_cols, count = min($panel_cols, num_cols - base);
#pragma unroll 8
for (int i = threadIdx.x; i < count; i += $block) segment[i] = x[base + i];
__syncthreads();
$out
#pragma unroll 1
for (int j = begin + threadIdx.x * $width; j < end; j += $stride) {
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    int k = j + u * $step;
    $products
    if (k < end) *($V*)(products + k$shift) = value[u];
  }
  fetch(j + $stride);
}
"""

ADD = """
extern __shared__ $T sorted[];
$round
int bin = ${first_bin}blockIdx.x, lane = threadIdx.x % 32;
int first = bin_rows[2 * bin], last = bin_rows[2 * bin + 1];
if (first == last) return;
int begin = bin * bin_nnz, end = min(begin + bin_nnz, nnz);
int row = first + threadIdx.x$per_row, head = row_offsets[min(row, last)], tail = row_offsets[min(row + 1, last)];
$out
auto put = [&](int k, $T product) { sorted[k + (k >> 5)] = product; };
const int* starts = segment_offsets + $first_segment * num_panels;
for (int panel = threadIdx.x / 32; panel < num_panels; panel += $panels_a_time) {
  int j[$add_unroll], stop[$add_unroll];
  bool more = true;
  #pragma unroll
  for (int u = 0; u < $add_unroll; u++) {
    int p = min(panel + u * $warps, num_panels - 1);
    j[u] = starts[p] + lane * $width;
    stop[u] = panel + u * $warps < num_panels ? starts[p + num_panels] : 0;
  }
  while (more) {
    $I to[$add_unroll];
    $V product[$add_unroll];
    #pragma unroll
    for (int u = 0; u < $add_unroll; u++)
      if (j[u] < stop[u]) {
        to[u] = __$load((const $I*)(positions + j[u]));
        product[u] = *(const $V*)(products + j[u]$shift);
      }
    more = false;
    #pragma unroll
    for (int u = 0; u < $add_unroll; u++) {
      if (j[u] < stop[u]) {
        $scatter
      }
      j[u] += $step;
      more |= j[u] < stop[u];
    }
  }
}
__syncthreads();
for (int start = first; start < last; start += $rows) {
  int from = max(head, begin) - begin, to = min(tail, end) - begin;
  $T sum = 0;
  if (to - from <= $longest)
    for (int k = from$own_lane; k < to; k += $lanes) sum += sorted[k + (k >> 5)];
  $group_sum
  unsigned pending = __ballot_sync(0xffffffff, to - from > $longest$leader);
  while (pending) {
    int source = __ffs(pending) - 1;
    pending &= pending - 1;
    int stop = __shfl_sync(0xffffffff, to, source);
    $T part = 0;
    for (int k = __shfl_sync(0xffffffff, from, source) + lane; k < stop; k += 32) part += sorted[k + (k >> 5)];
    $warp_sum
    if (lane == source) sum = part;
  }
  if (row < last$leader) {
    if (head < begin || tail > end) atomicAdd(y + row, sum);
    else y[row] = sum;
  }
  row += $rows;
  head = row_offsets[min(row, last)];
  tail = row_offsets[min(row + 1, last)];
}
"""


def _write(choice: Choice) -> str:
    rounds = choice.integer("rounds")
    shared = f"*{BYTES[choice.element_type]}"
    registers = choice.word("registers")
    launches = []
    for number in range(rounds):
        again = f",{number + 1}" if number else ""
        multiply = Launch(
            "multiply",
            f"num_parts{again}",
            choice.integer("block"),
            _multiply(choice),
            registers,
            f"{choice.integer('panel_cols')}{shared}",
        )
        add = Launch(
            "add",
            f"num_bins{again}",
            choice.integer("add_block"),
            _add(choice),
            registers,
            f"(bin_slots+ceil_div(bin_slots,32)){shared}",
        )
        launches += [multiply, add]
    settings = {name: choice.values[name] for name in ("panel_cols", "parts", "bins", "rounds")}
    return program("spmv", choice.element_type, "panels", settings, *launches)


def _multiply(choice: Choice) -> str:
    block, unroll, width = choice.integer("block"), choice.integer("unroll"), _width(choice)
    return _filled(
        choice,
        MULTIPLY,
        block=block,
        panel_cols=choice.integer("panel_cols"),
        unroll=unroll,
        step=block * width,
        stride=block * width * unroll,
        products="\n".join(f"value[u].{part} *= segment[col[u].{part}];" for part in "xyzw"[:width]),
    )


def _add(choice: Choice) -> str:
    block, lanes = choice.integer("add_block"), choice.integer("lanes")
    unroll, width = choice.integer("add_unroll"), _width(choice)
    return _filled(
        choice,
        ADD,
        warps=block // 32,
        panels_a_time=block // 32 * unroll,
        first_segment="(bin + round)" if choice.integer("rounds") > 1 else "bin",
        add_unroll=unroll,
        step=32 * width,
        scatter="\n".join(f"put(to[u].{part}, product[u].{part});" for part in "xyzw"[:width]),
        rows=block // lanes,
        per_row="" if lanes == 1 else f" / {lanes}",
        longest=32 * lanes,
        own_lane="" if lanes == 1 else f" + lane % {lanes}",
        lanes=lanes,
        group_sum=warp_sum(lanes),
        leader="" if lanes == 1 else f" && lane % {lanes} == 0",
        warp_sum=warp_sum(32, "part"),
    )


def _filled(choice: Choice, template: str, **names: object) -> str:
    """The template with what both kernels share filled in; a single round needs no arithmetic of rounds."""
    many = choice.integer("rounds") > 1
    width = _width(choice)
    shared = {"first_bin": "num_bins", "first_part": "num_parts"}
    for name, size in shared.items():
        template = template.replace(f"${{{name}}}", f"round * {size} + " if many else "")
    return fill(
        template,
        T=scalar(choice.element_type),
        I=vector("unsigned short", width),
        V=vector(scalar(choice.element_type), width),
        width=width,
        load=choice.word("load"),
        round=ROUND if many else "",
        out="int origin = part_offsets[round * num_parts];" if many else "",
        shift=" - origin" if many else "",
        **names,
    )


def _width(choice: Choice) -> int:
    """Elements of a 16-byte vector."""
    return 16 // BYTES[choice.element_type]


def _fits_shared(choice: Choice) -> bool:
    return choice.integer("panel_cols") * BYTES[choice.element_type] <= MAX_SHARED_BYTES


PANELS = Family(
    name="panels",
    operation="spmv",
    strategy="Products panel by panel with the panel's x in shared memory, streamed to scratch, then added up by bins "
    "of rows in shared memory; large matrices whose columns are scattered beyond the caches.",
    parameters={
        "panel_cols": OneOf(16384, (4096, 8192, 16384, 24576, 32768, 49152)),
        "parts": OneOf(264, (132, 264, 396)),
        "bins": OneOf(792, (264, 396, 528, 792, 1584, 3168)),
        "rounds": OneOf(1, (1, 2, 4)),
        "unroll": OneOf(2, (2, 4)),
        "block": OneOf(512, (512, 1024)),
        "lanes": OneOf(1, (1, 4)),
        "add_unroll": OneOf(2, (2, 4)),
        "add_block": OneOf(512, (256, 512)),
        "load": LOAD,
        "registers": REGISTERS,
    },
    suits=lambda pattern: pattern.nnz >= MIN_NNZ,
    write=_write,
    allows=_fits_shared,
)

FAMILIES = (PANELS,)
