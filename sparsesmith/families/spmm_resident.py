"""SpMM with a few columns of the whole dense operand in shared memory: nearly dense matrices, such as pruned layers."""

from sparsesmith.families.csr import INDEX, LOAD, REGISTERS
from sparsesmith.families.dense_tiles import ONE_CHUNK_PARAMETERS, tile_fits, tile_of
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import BYTES, Launch, fill, load, program
from sparsesmith.families.spmm_splits import few_suffice, shuffle_sum, store_vector
from sparsesmith.formats.format import OneOf
from sparsesmith.program.directives import MAX_SHARED_BYTES


def _slab_bytes(choice: Choice) -> int:
    """Shared memory: `capacity` rows of the columns of one group."""
    return choice.integer("capacity") * tile_of(choice).width * BYTES[choice.element_type]


def _write_resident(choice: Choice) -> str:
    tile, splits, unroll = tile_of(choice), choice.integer("splits"), choice.integer("unroll")
    block, passes, how = choice.integer("block"), choice.integer("passes"), choice.word("load")
    lanes, width, threads = tile.lanes, choice.num_dense_cols, tile.lanes * splits
    times = " + u" if splits == 1 else f" + u * {splits}"
    body = fill(
        """
extern __shared__ $V slab[];
if (num_cols > $capacity) return;
int row = blockIdx.x * $rows_a_block + threadIdx.x / $threads;
int lane = threadIdx.x % $lanes, part = threadIdx.x / $lanes % $splits;
int begin, end, col[$unroll];
$T value[$unroll];
auto fetch = [&](int j) {
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    int k = max(min(j$times, end - 1), 0);
    col[u] = $load_col;
    value[u] = $load_value;
    if (j$times >= end) value[u] = 0;
  }
};
auto open = [&]() {
  begin = row < num_rows ? row_offsets[row] : 0;
  end = row < num_rows ? row_offsets[row + 1] : 0;
  fetch(begin + part);
};
open();
#pragma unroll 1
for (int i = threadIdx.x; i < num_cols * $lanes; i += $copied) {
  $V copy[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    int k = min(i + u * $block, num_cols * $lanes - 1);
    copy[u] = $source;
  }
  #pragma unroll
  for (int u = 0; u < 4; u++)
    if (i + u * $block < num_cols * $lanes) slab[i + u * $block] = copy[u];
}
__syncthreads();
for (int pass = 0; pass < $passes; pass++) {
  $V sum = {};
  #pragma unroll 1
  for (int j = begin + part; j < end; j += $stride) {
    $V right[$unroll];
    #pragma unroll
    for (int u = 0; u < $unroll; u++) right[u] = slab[col[u] * $lanes + lane];
    #pragma unroll
    for (int u = 0; u < $unroll; u++) {
      $add
    }
    if (j + $stride < end) fetch(j + $stride);
  }
  $reduce
  if (part == 0 && row < num_rows) $store
  row += $rows;
  if (pass + 1 < $passes) open();
}
""",
        V=tile.c_type,
        T=tile.scalar,
        capacity=choice.integer("capacity"),
        rows=block // threads,
        rows_a_block=block // threads * passes,
        threads=threads,
        lanes=lanes,
        splits=splits,
        unroll=unroll,
        times=times,
        load_col=load(how, "col_indices + k"),
        load_value=load(how, "values + k"),
        block=block,
        copied=4 * block,
        source=tile.read(
            f"b + (size_t)(k / {lanes}) * {width} + blockIdx.y * {tile.width} + k % {lanes} * {tile.vector}"
        ),
        passes=passes,
        stride=splits * unroll,
        add=tile.multiply_add("sum", "value[u]").replace("right", "right[u]"),
        reduce=shuffle_sum(tile, splits),
        store=store_vector(tile, f"c + (size_t)row * {width} + blockIdx.y * {tile.width} + lane * {tile.vector}"),
    )
    launch = Launch(
        "spmm",
        f"ceil_div(num_rows,{block // threads * passes}),{width // tile.width}",
        block,
        body,
        choice.word("registers"),
        str(_slab_bytes(choice)),
    )
    return program("spmm", choice.element_type, "csr", {"index": choice.word("index")}, launch)


def _resident_fits(choice: Choice) -> bool:
    """Even tiles, a row's groups within one warp, the slab within shared memory."""
    tile = tile_of(choice)
    even = tile_fits(choice) and choice.num_dense_cols % tile.width == 0
    many = choice.integer("block") > 512 and choice.word("registers") == "few"
    registers = few_suffice(choice, choice.integer("unroll")) and not many
    shared = _slab_bytes(choice) <= MAX_SHARED_BYTES
    return even and registers and shared and tile.lanes * choice.integer("splits") <= 32


SPMM_RESIDENT = Family(
    name="spmm_resident",
    operation="spmm",
    strategy="A block holds a few columns of all of B in shared memory and multiplies many rows by them; nearly dense "
    "matrices of few columns, such as pruned layers.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "capacity": OneOf(1024, (256, 512, 1024, 2048, 4096, 7168)),
        "splits": OneOf(8, (1, 2, 4, 8, 16)),
        "passes": OneOf(1, (1, 2, 4, 8)),
        "unroll": OneOf(4, (2, 4, 8)),
        "block": OneOf(512, (256, 512, 1024)),
        "load": LOAD,
        "registers": REGISTERS,
        "index": INDEX,
    },
    suits=lambda pattern: pattern.num_cols <= 7168 and pattern.nnz >= 8 * max(pattern.num_cols, pattern.num_rows),
    write=_write_resident,
    allows=_resident_fits,
)

FAMILIES = (SPMM_RESIDENT,)
