"""SpMM over HYB: a group of lanes a row over a few slots, each longer row by a whole block."""

from sparsesmith.families.csr import INDEX, LOAD, REGISTERS
from sparsesmith.families.dense_tiles import ONE_CHUNK_PARAMETERS, tile_fits, tile_of
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.hyb import WIDTH, hyb_suits
from sparsesmith.families.source import Launch, fill, load, program
from sparsesmith.formats.format import OneOf, ParameterValue


def _write(choice: Choice) -> str:
    block, width, tile, how = choice.integer("block"), choice.integer("width"), tile_of(choice), choice.word("load")
    groups, narrow = block // tile.lanes, choice.word("index") == "u16"
    body = fill(
        """
__shared__ $V partials[$block];
int group = threadIdx.x / $lanes;
int column = $column;
$declare
if (blockIdx.x < num_rest_rows) {
  int row = rest_rows[blockIdx.x];
  int begin = rest_offsets[blockIdx.x], end = rest_offsets[blockIdx.x + 1];
  #pragma unroll 1
  for (int start = begin + group; start < end$in_tile; start += $stride) {
    #pragma unroll
    for (int u = 0; u < $unroll; u++) {
      int j = min(start + u * $groups, end - 1);
      int col = $rest_col;
      $T value = $rest_value;
      if (start + u * $groups >= end) value = 0;
      $add
    }
  }
  partials[threadIdx.x] = sum;
  __syncthreads();
  if (group > 0$out_of_tile) return;
  for (int g = 1; g < $groups; g++) {
    $V part = partials[g * $lanes + threadIdx.x];
    $join
  }
  $store
} else {
  int row = (blockIdx.x - num_rest_rows) * $groups + group;
  if (row >= num_rows$out_of_tile) return;
  int apart = rest_mask[row / 32] >> row % 32 & 1;
  $base
  #pragma unroll $unroll
  for (int k = 0; k < $width; k++) {
    int col = $load_col;
    $T value = $load_value;
    $add
  }
  if (!apart) {
    $store
  }
}
""",
        V=tile.c_type,
        T=tile.scalar,
        block=block,
        lanes=tile.lanes,
        groups=groups,
        column=tile.column,
        declare=tile.declare(),
        unroll=choice.integer("unroll"),
        stride=groups * choice.integer("unroll"),
        in_tile=tile.guard.replace(" || column >=", " && column <"),
        out_of_tile=tile.guard,
        rest_col=load(how, "rest_cols + j"),
        rest_value=load(how, f"values + {width} * stride + j"),
        add=tile.add("value", "col"),
        join=" ".join(f"sum{field} += part{field};" for field in tile.fields),
        store=tile.store(f"c + (size_t)row * {choice.num_dense_cols}"),
        base="int base = slice_col_base[row / 32];" if narrow else "",
        width=width,
        load_col=("base + " if narrow else "") + load(how, "col_indices + k * stride + row"),
        load_value=load(how, "values + k * stride + row"),
    )
    grid = f"num_rest_rows+ceil_div(num_rows,{groups}){tile.grid}"
    settings: dict[str, ParameterValue] = {"width": width, "rest": "rows", "index": choice.word("index")}
    launch = Launch("spmm", grid, block, body, choice.word("registers"))
    return program("spmm", choice.element_type, "hyb", settings, launch)


SPMM_HYB = Family(
    name="spmm_hyb",
    operation="spmm",
    strategy="A group of lanes a row over `width` slots, longer rows by a whole block each; short rows with some long "
    "ones.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "width": WIDTH,
        "unroll": OneOf(4, (1, 2, 4, 8)),
        "block": OneOf(128, (64, 128, 256)),
        "load": LOAD,
        "registers": REGISTERS,
        "index": INDEX,
    },
    suits=hyb_suits,
    write=_write,
    allows=tile_fits,
)

FAMILIES = (SPMM_HYB,)
