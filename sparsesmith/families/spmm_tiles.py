"""SpMM over tiles of whole rows: equal shares of a tile's nonzeros for groups of lanes, cut rows joined at the end.

Columns, values and row bounds are addressed by the tile's number; the gathers of B are under way before the block
learns which rows they belong to.
"""

from sparsesmith.families.csr import INDEX, LOAD, REGISTERS
from sparsesmith.families.dense_tiles import ONE_CHUNK_PARAMETERS, DenseTile, tile_fits, tile_of
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import BYTES, Launch, fill, load, program, vector
from sparsesmith.families.spmm_splits import (
    PLACEMENT,
    block_number,
    few_suffice,
    grid_of,
    own_column,
    store_vector,
)
from sparsesmith.formats.csr_tiles import LANES, LONG_ROWS
from sparsesmith.formats.format import OneOf, ParameterValue

GATHERS = OneOf("early", ("early", "late"))
"""Before the block learns its rows, or after, for launches that start before B is ready."""

ADDING_BLOCK = 256
REGISTER_BYTES = 128 * 1024
"""What a block's columns, values and rows of B may take of the registers."""


def _capacity(choice: Choice) -> int:
    """Slots of a tile: a share for each group of the block."""
    return choice.integer("block") // choice.integer("lanes") * choice.integer("share")


def _reads(array: str, c_type: str, size: int, choice: Choice) -> str:
    """Loads a group's share of `array` with the widest vectors that divide it."""
    share, how = choice.integer("share"), choice.word("load")
    step = min(share, 4, 16 // size)
    wide = vector(c_type, step)
    name = {"col_indices": "col", "values": "value"}[array]
    read = load(how, f"(const {wide}*)({array} + slot + u)" if step > 1 else f"{array} + slot + u")
    copy = f"*({wide}*)({name} + u) = {read};" if step > 1 else f"{name}[u] = {read};"
    return f"#pragma unroll\nfor (int u = 0; u < {share}; u += {step}) {copy}"


def _read_offsets(bounds: int, block: int) -> str:
    copy = f"offsets[i] = local_offsets[tile * {bounds} + i];"
    if bounds <= block:
        return f"int i = threadIdx.x;\nif (i < {bounds}) {copy}"
    return f"for (int i = threadIdx.x; i < {bounds}; i += {block}) {copy}"


def _gather(choice: Choice, tile: DenseTile) -> str:
    """Reads the rows of B of a group's share."""
    share = choice.integer("share")
    col = "(base + col[u])" if choice.word("index") == "u16" else "col[u]"
    read = tile.read(f"b + (size_t){col} * {choice.num_dense_cols} + column")
    each = f"#pragma unroll\nfor (int u = 0; u < {share}; u++) right[u] = {read};"
    return f"{tile.c_type} right[{share}];\n{each}"


def _output(choice: Choice) -> str:
    """Where the tile's first row goes: pieces of long rows wait in `carry`."""
    width = choice.num_dense_cols
    if choice.word("long_rows") == "refuse":
        return f"c + (size_t)range.x * {width}"
    return (
        f"tile < num_whole_tiles ? c + (size_t)range.x * {width} : carry + (size_t)(tile - num_whole_tiles) * {width}"
    )


def _store(choice: Choice, tile: DenseTile) -> str:
    """Writes `sum` to local row `row`."""
    store = store_vector(tile, f"out + row * {choice.num_dense_cols} + column")
    return f"if (inside) {store}" if tile.guard else store


def _write_tiles(choice: Choice) -> str:
    block, tile, share, rows = choice.integer("block"), tile_of(choice), choice.integer("share"), choice.integer("rows")
    narrow, placement = choice.word("index") == "u16", choice.word("placement")
    size = BYTES[choice.element_type]
    body = fill(
        """
__shared__ int offsets[$bounds];
__shared__ $V partials[$block];
int tile = $number, group = $group;
$beyond
$column
int slot = tile * $capacity + group * $share;
__align__(16) $I col[$share];
__align__(16) $T value[$share];
$read_cols
$read_values
int2 range = *(const int2*)(tile_rows + 2 * tile);
$base
$read_offsets
$early
__syncthreads();
int rows = range.y - range.x;
int begin = min(group * $share, offsets[rows]);
int row = 0;
for (int above = rows; row < above;) {
  int middle = (row + above) / 2;
  if (offsets[middle + 1] > begin - (group == 0)) above = middle;
  else row = middle + 1;
}
$late
$T* out = $output;
int cut = rows, left = row < rows ? offsets[row + 1] - begin : $never;
$V sum = {}, head = {};
#pragma unroll
for (int u = 0; u <= $share; u++) {
  while (left <= u) {
    if (offsets[row] < begin) {
      cut = row;
      head = sum;
    } else {
      $store
    }
    sum = $zero;
    row++;
    left = row < rows ? offsets[row + 1] - begin : $never;
  }
  if (u < $share) {
    $add
  }
}
partials[threadIdx.x] = sum;
__syncthreads();
if (cut < rows) {
  row = cut;
  sum = head;
  for (int g = offsets[row] / $share; g < group; g++) {
    $V part = partials[g * $lanes + threadIdx.x % $lanes];
    $join
  }
  $store
}
""",
        bounds=rows + 1,
        V=tile.c_type,
        block=block,
        lanes=tile.lanes,
        number=block_number(placement),
        group="threadIdx.x" if tile.lanes == 1 else f"threadIdx.x / {tile.lanes}",
        beyond="if (tile >= num_tiles) return;" if placement == "near" else "",
        column=own_column(tile, placement),
        capacity=_capacity(choice),
        share=share,
        never=share + 1,
        I="unsigned short" if narrow else "int",
        T=tile.scalar,
        read_cols=_reads("col_indices", "unsigned short" if narrow else "int", 2 if narrow else 4, choice),
        read_values=_reads("values", tile.scalar, size, choice),
        base="int base = tile_col_base[tile];" if narrow else "",
        read_offsets=_read_offsets(rows + 1, block),
        early=_gather(choice, tile) if choice.word("gathers") == "early" else "",
        late=_gather(choice, tile) if choice.word("gathers") == "late" else "",
        output=_output(choice),
        store=_store(choice, tile),
        zero=tile.zero,
        add=tile.multiply_add("sum", "value[u]").replace("right", "right[u]"),
        join=" ".join(f"sum{field} += part{field};" for field in tile.fields),
    )
    settings: dict[str, ParameterValue] = {
        "chunks": _capacity(choice) // LANES,
        "vector": 1,
        "max_rows": rows,
        "index": choice.word("index"),
        "long_rows": choice.word("long_rows"),
    }
    main = Launch("spmm", grid_of("num_tiles", placement, tile), block, body, choice.word("registers"))
    ends = (_add_pieces(choice),) if choice.word("long_rows") == "split" else ()
    return program("spmm", choice.element_type, "csr_tiles", settings, main, *ends)


def _add_pieces(choice: Choice) -> Launch:
    """A block a long row: its groups take every so many pieces, then join."""
    width = choice.num_dense_cols
    cols = min(32, 1 << (width - 1).bit_length())
    groups = ADDING_BLOCK // cols
    tiles = -(-width // cols)
    body = fill(
        """
__shared__ $T sums[$block];
int row = blockIdx.x, column = $column;
if (row >= num_split_rows) return;
$T sum = 0;
#pragma unroll 4
for (int piece = split_pieces[row] + threadIdx.x / $cols; piece < split_pieces[row + 1]; piece += $groups)
  sum += carry[(size_t)piece * $width + $within];
sums[threadIdx.x] = sum;
__syncthreads();
if (threadIdx.x >= $cols$guard) return;
for (int g = 1; g < $groups; g++) sum += sums[g * $cols + threadIdx.x];
c[(size_t)split_rows[row] * $width + column] = sum;
""",
        T=tile_of(choice).scalar,
        block=ADDING_BLOCK,
        column=f"threadIdx.x % {cols}" if tiles == 1 else f"blockIdx.y * {cols} + threadIdx.x % {cols}",
        cols=cols,
        groups=groups,
        width=width,
        within=f"min(column, {width - 1})" if width % cols else "column",
        guard=f" || column >= {width}" if width % cols else "",
    )
    grid = "max(1,num_split_rows)" + (f",{tiles}" if tiles > 1 else "")
    return Launch("add_pieces", grid, ADDING_BLOCK, body)


def _tiles_fit(choice: Choice) -> bool:
    """Groups share the tile evenly, gathers fit in registers."""
    size, share = BYTES[choice.element_type], choice.integer("share")
    held = choice.integer("block") * share * (4 + size + size * choice.integer("vector"))
    chunks, rest = divmod(_capacity(choice), LANES)
    fits = held <= REGISTER_BYTES and few_suffice(choice, share)
    return tile_fits(choice) and fits and rest == 0 and chunks <= 128


SPMM_TILES = Family(
    name="spmm_tiles",
    operation="spmm",
    strategy="A block a tile of whole rows, equal shares of its nonzeros for groups of lanes, all gathers in flight "
    "before rows are known, cut rows joined in shared memory; any lengths, small matrices above all.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "share": OneOf(8, (2, 4, 8, 16)),
        "rows": OneOf(64, (16, 32, 64, 128, 256)),
        "block": OneOf(128, (64, 128, 256, 512)),
        "long_rows": LONG_ROWS,
        "gathers": GATHERS,
        "placement": PLACEMENT,
        "load": LOAD,
        "registers": REGISTERS,
        "index": INDEX,
    },
    suits=lambda pattern: True,
    write=_write_tiles,
    allows=_tiles_fit,
)

FAMILIES = (SPMM_TILES,)
