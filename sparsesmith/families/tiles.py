"""SpMV over tiles: every load but that of x is addressed by the tile's number alone, and one launch does it all."""

from sparsesmith.families.csr import INDEX, LOAD, REGISTERS
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import (
    BYTES,
    MAX_STATIC_SHARED_BYTES,
    Launch,
    block_sum,
    fill,
    load,
    program,
    scalar,
    vector,
    warp_sum,
)
from sparsesmith.formats.csr_tiles import ORDER, ROWS
from sparsesmith.formats.format import OneOf, ParameterValue

MAX_ROWS = 4096
MAX_CHUNKS = 128
MAX_ITEM_BYTES = 128 * 1024
"""Columns and values that a block holds in registers."""
LONG_ROW = 32
"""Times the lanes of a row: beyond, the warp sums the row."""


def _copies(array: str, source: str, c_type: str, choice: Choice, threads: int) -> str:
    """Vector loads of a thread's slots, a chunk of the tile after the other."""
    items, width = choice.integer("items"), choice.integer("vector")
    size = {"float": 4, "double": 8, "int": 4, "unsigned short": 2}[c_type]
    step = min(width, 16 // size)
    wide = vector(c_type, step)
    batch = f" + k * {threads}" if step == width else f" + k / {width} * {threads * width} + k % {width}"
    offset, place = (batch, " + k") if items > step else ("", "")
    read = load(choice.word("load"), f"(const {wide}*)({source} + slot{offset})")
    copy = f"*({wide}*){f'({array}{place})' if place else array} = {read};"
    if items == step:
        return copy
    return f"#pragma unroll\nfor (int k = 0; k < {items}; k += {step}) {copy}"


def _place(choice: Choice, threads: int) -> str:
    """Where in the tile's shared memory the k-th product of a thread belongs."""
    if choice.values.get("order") == "column":
        return "target[k]"
    items, width = choice.integer("items"), choice.integer("vector")
    own = f"thread / 32 * {32 * width} + thread % 32"
    within = "k * 32" if items == width else f"k / {width} * {threads * width} + k % {width} * 32"
    return f"{own} + {within}"


def _bounds(choice: Choice, threads: int) -> str:
    """Reads, early, which rows a thread sums and where they begin and end in the tile."""
    lanes, rows = choice.integer("lanes"), choice.integer("rows")
    groups = threads // lanes
    natural = _sequence(choice) == "natural"
    return fill(
        """
$range
int from[$rows], to[$rows], row[$rows];
#pragma unroll
for (int r = 0; r < $rows; r++) {
  int place = $own + r * $groups;
  from[r] = local_offsets[tile * $stride + place];
  to[r] = local_offsets[tile * $stride + place + 1];
  row[r] = $row;
}
""",
        range="int2 range = *(const int2*)(tile_rows + tile * 2);" if natural else "",
        rows=rows,
        own="thread" if lanes == 1 else f"thread / {lanes}",
        groups=groups,
        stride=groups * rows + 1,
        row="range.x + place" if natural else f"row_ids[tile * {groups * rows} + place]",
    )


def _sequence(choice: Choice) -> str:
    return str(choice.values.get("sequence", "natural"))


def _sums(choice: Choice) -> str:
    """Sums each row of the tile from shared memory and stores it."""
    lanes = choice.integer("lanes")
    store = "row[r] < range.y" if _sequence(choice) == "natural" else "row[r] >= 0"
    store = store if lanes == 1 else f"thread % {lanes} == 0 && {store}"
    own_lane = "" if lanes == 1 else f" + thread % {lanes}"
    serial = f"for (int k = from[r]{own_lane}; k < to[r]; k += {lanes}) sum += products[k];"
    mixed = choice.word("long") == "warp"
    return fill(
        """
#pragma unroll
for (int r = 0; r < $rows; r++) {
  $T sum = 0;
  $guard
  $serial
  $warp_sum
  $long
  if ($store) y[row[r]] = sum;
}
""",
        rows=choice.integer("rows"),
        T=scalar(choice.element_type),
        guard=f"if (to[r] - from[r] <= {LONG_ROW * lanes})" if mixed else "",
        serial=f"  {serial}" if mixed else serial,
        warp_sum=warp_sum(lanes),
        long=_long_rows(choice) if mixed else "",
        store=store,
    )


def _long_rows(choice: Choice) -> str:
    """The warp sums the long rows of its groups, one after the other."""
    lanes = choice.integer("lanes")
    leader = "" if lanes == 1 else f" && thread % {lanes} == 0"
    return fill(
        """
unsigned open = __ballot_sync(0xffffffff, to[r] - from[r] > $longest$leader);
while (open) {
  int owner = __ffs(open) - 1;
  open &= open - 1;
  int stop = __shfl_sync(0xffffffff, to[r], owner);
  $T part = 0;
  for (int k = __shfl_sync(0xffffffff, from[r], owner) + thread % 32; k < stop; k += 32) part += products[k];
  $warp_sum
  if (thread % 32 == owner) sum = part;
}
""",
        longest=LONG_ROW * lanes,
        leader=leader,
        T=scalar(choice.element_type),
        warp_sum=warp_sum(32, "part"),
    )


def _share(choice: Choice, threads: int) -> str:
    """Loads a thread's share of the tile."""
    c_index = "int" if choice.word("index") == "i32" else "unsigned short"
    sorts = choice.values.get("order") == "column"
    place = _copies("target", "places", "unsigned short", choice, threads)
    return fill(
        """
int slot = tile * $capacity + thread * $vector;
__align__(16) $I col[$items];
__align__(16) $T value[$items];
$cols
$values
$places
$bounds
$base
""",
        capacity=threads * choice.integer("items"),
        vector=choice.integer("vector"),
        I=c_index,
        T=scalar(choice.element_type),
        items=choice.integer("items"),
        cols=_copies("col", "col_indices", c_index, choice, threads),
        values=_copies("value", "values", scalar(choice.element_type), choice, threads),
        places=f"__align__(16) unsigned short target[{choice.integer('items')}];\n{place}" if sorts else "",
        bounds=_bounds(choice, threads),
        base=_base(choice, threads) if choice.word("index") == "u16" else "",
    )


def _base(choice: Choice, threads: int) -> str:
    """What 16-bit columns count from: those of a sorted chunk, or of the whole tile."""
    if choice.values.get("order") != "column":
        return "int base = tile_col_base[tile];"
    width = choice.integer("vector")
    own, warps, chunks = "thread / 32", threads // 32, choice.integer("items") // width
    first = f"tile * {warps * chunks}" + ("" if warps == 1 else f" + {own}")
    if chunks == 1:
        return f"int base = col_base[{first}];"
    step = "c" if warps == 1 else f"c * {warps}"
    return (
        f"int base[{chunks}];\n#pragma unroll\nfor (int c = 0; c < {chunks}; c++) base[c] = col_base[{first} + {step}];"
    )


def _product(choice: Choice) -> str:
    if choice.word("index") == "i32":
        return "value[k] * x[col[k]]"
    width = choice.integer("vector")
    is_one = choice.integer("items") == width or choice.values.get("order") != "column"
    base = "base" if is_one else f"base[k / {width}]"
    return f"value[k] * x[{base} + col[k]]"


def _scatter(choice: Choice, threads: int, barrier: str) -> str:
    return fill(
        """
#pragma unroll
for (int k = 0; k < $items; k++) products[$place] = $product;
$barrier
""",
        items=choice.integer("items"),
        place=_place(choice, threads),
        product=_product(choice),
        barrier=barrier,
    )


def _settings(choice: Choice, threads: int, long_rows: str) -> dict[str, ParameterValue]:
    width = choice.integer("vector")
    return {
        "chunks": threads * choice.integer("items") // (32 * width),
        "vector": width,
        "max_rows": threads // choice.integer("lanes") * choice.integer("rows"),
        "index": choice.word("index"),
        "order": str(choice.values.get("order", "row")),
        "rows": _sequence(choice),
        "long_rows": long_rows,
    }


def _write_block(choice: Choice) -> str:
    block = choice.integer("block")
    body = fill(
        """
__shared__ $T products[$capacity];
int tile = blockIdx.x, thread = threadIdx.x;
$share
$scatter
$sums
""",
        T=scalar(choice.element_type),
        capacity=block * choice.integer("items"),
        share=_share(choice, block),
        scatter=_scatter(choice, block, "__syncthreads();"),
        sums=_sums(choice),
    )
    launch = Launch("spmv", "num_tiles", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "csr_tiles", _settings(choice, block, "refuse"), launch)


def _write_sorted(choice: Choice) -> str:
    return _write_block(Choice({**choice.values, "order": "column"}, choice.element_type, choice.num_dense_cols))


def _write_warp(choice: Choice) -> str:
    warps, capacity = choice.integer("block") // 32, 32 * choice.integer("items")
    body = fill(
        """
__shared__ $T staging[$staged];
int tile = blockIdx.x * $warps + threadIdx.x / 32, thread = threadIdx.x % 32;
if (tile >= num_tiles) return;
$T* products = staging + threadIdx.x / 32 * $capacity;
$share
$scatter
$sums
""",
        T=scalar(choice.element_type),
        staged=warps * capacity,
        warps=warps,
        capacity=capacity,
        share=_share(choice, 32),
        scatter=_scatter(choice, 32, "__syncwarp();"),
        sums=_sums(choice),
    )
    launch = Launch("spmv", f"ceil_div(num_tiles,{warps})", choice.integer("block"), body, choice.word("registers"))
    return program("spmv", choice.element_type, "csr_tiles", _settings(choice, 32, "refuse"), launch)


def _write_split(choice: Choice) -> str:
    block = choice.integer("block")
    body = fill(
        """
__shared__ $T products[$capacity];
int tile = blockIdx.x, thread = threadIdx.x;
$share
if (tile >= num_whole_tiles) {
  $T sum = 0;
  #pragma unroll
  for (int k = 0; k < $items; k++) sum += $product;
  $block_sum
  return;
}
$scatter
$sums
""",
        T=scalar(choice.element_type),
        capacity=block * choice.integer("items"),
        share=_share(choice, block),
        items=choice.integer("items"),
        product=_product(choice),
        block_sum=block_sum(block, "carry[tile - num_whole_tiles]", choice.element_type, "products"),
        scatter=_scatter(choice, block, "__syncthreads();"),
        sums=_sums(choice),
    )
    finish = fill(
        """
int row = blockIdx.x;
if (row >= num_split_rows) return;
$T sum = 0;
for (int k = split_pieces[row] + threadIdx.x; k < split_pieces[row + 1]; k += 32) sum += carry[k];
$warp_sum
if (threadIdx.x == 0) y[split_rows[row]] = sum;
""",
        T=scalar(choice.element_type),
        warp_sum=warp_sum(32),
    )
    return program(
        "spmv",
        choice.element_type,
        "csr_tiles",
        _settings(choice, block, "split"),
        Launch("spmv", "num_tiles", block, body, choice.word("registers")),
        Launch("add", "max(num_split_rows,1)", 32, finish),
    )


def _legal(choice: Choice, threads: int) -> bool:
    """Whether a tile can be cut so, and its products and a block's registers suffice."""
    items, width, lanes = choice.integer("items"), choice.integer("vector"), choice.integer("lanes")
    element_bytes, block = BYTES[choice.element_type], choice.integer("block")
    return (
        items % width == 0
        and 1 <= threads * items // (32 * width) <= MAX_CHUNKS
        and threads // lanes * choice.integer("rows") <= MAX_ROWS
        and block * items * element_bytes <= MAX_STATIC_SHARED_BYTES
        and block * items * (element_bytes + 4) <= MAX_ITEM_BYTES
    )


_SPLIT_SETTINGS = {
    "rows": OneOf(1, (1, 2, 4, 8)),
    "long": OneOf("lanes", ("lanes", "warp")),
    "items": OneOf(4, (2, 4, 8, 16)),
    "vector": OneOf(4, (2, 4)),
    "load": LOAD,
    "registers": REGISTERS,
    "index": INDEX,
}
_SETTINGS = {**_SPLIT_SETTINGS, "sequence": ROWS}
_LANES = OneOf(4, (1, 2, 4, 8, 16, 32))
_BLOCK = OneOf(128, (32, 64, 128, 256, 512))

CSR_TILES = Family(
    name="csr_tiles",
    operation="spmv",
    strategy="A block takes a tile of whole rows and knows every address from its number; columns, values and row "
    "bounds arrive together, then x, then sums in shared memory: the least latency for uneven rows.",
    parameters={"lanes": _LANES, "block": _BLOCK, **_SETTINGS},
    suits=lambda pattern: int(pattern.row_lengths.max()) <= 12288,
    write=_write_block,
    allows=lambda choice: _legal(choice, choice.integer("block")),
)

CSR_WARP_TILES = Family(
    name="csr_warp_tiles",
    operation="spmv",
    strategy="As csr_tiles, with a small tile for each warp and no barrier of the block; short rows.",
    parameters={"lanes": _LANES, "block": OneOf(64, (64, 128, 256)), **_SETTINGS},
    suits=lambda pattern: int(pattern.row_lengths.max()) <= 512,
    write=_write_warp,
    allows=lambda choice: _legal(choice, 32),
)

CSR_TILES_SORTED = Family(
    name="csr_tiles_sorted",
    operation="spmv",
    strategy="As csr_tiles, with each tile's nonzeros sorted by column, so that lanes read x side by side, and put in "
    "their rows' order in shared memory; scattered columns with repetitions.",
    parameters={"lanes": _LANES, "block": _BLOCK, **_SETTINGS},
    suits=lambda pattern: int(pattern.row_lengths.max()) <= 12288,
    write=_write_sorted,
    allows=lambda choice: _legal(choice, choice.integer("block")),
)

CSR_TILES_SPLIT = Family(
    name="csr_tiles_split",
    operation="spmv",
    strategy="As csr_tiles, with rows longer than a tile split into pieces that a small second launch adds up; a few "
    "giant rows among short ones.",
    parameters={"lanes": _LANES, "block": _BLOCK, "order": ORDER, **_SPLIT_SETTINGS},
    suits=lambda pattern: int(pattern.row_lengths.max()) > 128,
    write=_write_split,
    allows=lambda choice: _legal(choice, choice.integer("block")),
)

FAMILIES = (CSR_TILES, CSR_WARP_TILES, CSR_TILES_SORTED, CSR_TILES_SPLIT)
