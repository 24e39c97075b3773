"""SpMM where several groups of lanes share a row and join their sums by shuffles: for few rows, or rather long ones."""

from sparsesmith.families.csr import INDEX, LOAD, REGISTERS
from sparsesmith.families.dense_tiles import ONE_CHUNK_PARAMETERS, DenseTile, add_batch, tile_fits, tile_of
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import BYTES, FULL_WARP, Launch, fill, load, program
from sparsesmith.formats.format import IntegerRange, OneOf, ParameterSpec

BLOCK = OneOf(128, (32, 64, 128, 256, 512))
MAX_FEW = 128
PLACEMENT = OneOf("spread", ("spread", "near"))
"""near: blocks of neighbouring rows go to one multiprocessor, whose L1 keeps the rows of B that they share."""

MAX_SLOTS = 32
"""Slots of an ell row that one thread reads at once."""


def own_column(tile: DenseTile, placement: str) -> str:
    """Declares `column`; where tiles overhang the last column, it stays within and `inside` tells who may store."""
    first = tile.column.replace("blockIdx.y", "blockIdx.z") if placement == "near" else tile.column
    if not tile.guard:
        return f"int column = {first};"
    inside = f"bool inside = column < {tile.num_dense_cols};"
    return f"int column = {first};\n{inside}\ncolumn = min(column, {tile.num_dense_cols - tile.vector});"


def block_number(placement: str) -> str:
    """Which piece of the matrix a block takes."""
    return "blockIdx.x" if placement == "spread" else "blockIdx.x * gridDim.y + blockIdx.y"


def grid_of(blocks: str, placement: str, tile: DenseTile) -> str:
    """A grid of `blocks` blocks for each tile of dense columns; blocks that start together differ in x."""
    return f"{blocks}{tile.grid}" if placement == "spread" else f"num_sms,ceil_div({blocks},num_sms){tile.grid}"


def may_store(tile: DenseTile) -> str:
    """The rest of a condition for storing."""
    return " && inside" if tile.guard else ""


def store_vector(tile: DenseTile, address: str) -> str:
    """Writes `sum`; inside loops the compiler takes a plain store of a vector apart."""
    return f"__stcg({address if tile.vector == 1 else f'({tile.c_type}*)({address})'}, sum);"


def few_suffice(choice: Choice, in_flight: int) -> bool:
    """Whether `in_flight` nonzeros fit in the registers the compiler allots by itself, without spills (measured)."""
    return choice.word("registers") == "free" or in_flight * BYTES[choice.element_type] ** 2 <= MAX_FEW


def shuffle_sum(tile: DenseTile, groups: int) -> str:
    """Sums `sum` over `groups` neighbouring groups of lanes of a warp."""
    if groups == 1:
        return ""
    each = " ".join(f"sum{field} += __shfl_xor_sync({FULL_WARP}, sum{field}, step);" for field in tile.fields)
    head = f"for (int step = {groups * tile.lanes // 2}; step >= {tile.lanes}; step /= 2)"
    return f"#pragma unroll\n{head}" + (f" {each}" if tile.vector == 1 else f" {{\n  {each}\n}}")


def join_warps(tile: DenseTile, warps: int) -> str:
    """Sums `sum` of each row's `warps` warps, whose lanes already agree, into its first warp."""
    if warps == 1:
        return ""
    part = f"partials[(threadIdx.x / 32 + w) * {tile.lanes} + threadIdx.x % {tile.lanes}]"
    add = " ".join(f"sum{field} += part{field};" for field in tile.fields)
    return fill(
        """
if (threadIdx.x % 32 < $lanes) partials[threadIdx.x / 32 * $lanes + threadIdx.x % 32] = sum;
__syncthreads();
if (part == 0) {
  #pragma unroll
  for (int w = 1; w < $warps; w++) {
    $V part = $part;
    $add
  }
}
""",
        lanes=tile.lanes,
        warps=warps,
        V=tile.c_type,
        part=part,
        add=add,
    )


def _join_and_store(choice: Choice, tile: DenseTile) -> str:
    """Joins the sums of a row's groups and stores them."""
    splits = choice.integer("splits")
    in_warp = min(splits, 32 // tile.lanes)
    parts = [shuffle_sum(tile, in_warp), join_warps(tile, splits // in_warp)]
    store = tile.store(f"c + (size_t)row * {choice.num_dense_cols}")
    return "\n".join([*filter(None, parts), f"if (part == 0 && row < num_rows{may_store(tile)}) {store}"])


def _partials(choice: Choice, tile: DenseTile) -> str:
    """Shared memory for rows of several warps."""
    if choice.integer("splits") * tile.lanes <= 32:
        return ""
    return f"__shared__ {tile.c_type} partials[{choice.integer('block') // 32 * tile.lanes}];"


def _part(tile: DenseTile, splits: int) -> str:
    """Which of a row's groups a thread is in."""
    if splits == 1:
        return "0"
    group = "threadIdx.x" if tile.lanes == 1 else f"threadIdx.x / {tile.lanes}"
    return f"{group} % {splits}"


def _row(choice: Choice, tile: DenseTile) -> str:
    """The row of a thread."""
    threads = tile.lanes * choice.integer("splits")
    rows, number = choice.integer("block") // threads, block_number(choice.word("placement"))
    if rows == 1:
        return number
    first = f"({number}) * {rows}" if " " in number else f"{number} * {rows}"
    return f"{first} + threadIdx.x" + (f" / {threads}" if threads > 1 else "")


def _launch(choice: Choice, tile: DenseTile, body: str) -> Launch:
    block, placement = choice.integer("block"), choice.word("placement")
    rows = block // (tile.lanes * choice.integer("splits"))
    return Launch("spmm", grid_of(f"ceil_div(num_rows,{rows})", placement, tile), block, body, choice.word("registers"))


def _write_rows_split(choice: Choice) -> str:
    tile, splits, unroll = tile_of(choice), choice.integer("splits"), choice.integer("unroll")
    how = choice.word("load")
    body = fill(
        """
$partials
int row = $row;
int part = $part;
$column
int begin = 0, end = 0;
if (row < num_rows) begin = row_offsets[row], end = row_offsets[row + 1];
int col[$unroll];
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
fetch(begin + part);
$declare
#pragma unroll 1
for (int j = begin + part; j < end; j += $stride) {
  $V right[$unroll];
  $T factor[$unroll];
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    right[u] = $gather;
    factor[u] = value[u];
  }
  if (j + $stride < end) fetch(j + $stride);
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    $add
  }
}
$finish
""",
        partials=_partials(choice, tile),
        row=_row(choice, tile),
        part=_part(tile, splits),
        column=own_column(tile, choice.word("placement")),
        declare=tile.declare(),
        stride=splits * unroll,
        unroll=unroll,
        T=tile.scalar,
        V=tile.c_type,
        times=" + u" if splits == 1 else f" + u * {splits}",
        load_col=load(how, "col_indices + k"),
        load_value=load(how, "values + k"),
        gather=tile.read(f"b + (size_t)col[u] * {choice.num_dense_cols} + column"),
        add=tile.multiply_add("sum", "factor[u]").replace("right", "right[u]"),
        finish=_join_and_store(choice, tile),
    )
    return program("spmm", choice.element_type, "csr", {"index": choice.word("index")}, _launch(choice, tile, body))


def _slots(choice: Choice) -> int:
    """Slots of an ell row that each of its groups takes."""
    return -(-choice.integer("width") // choice.integer("splits"))


def _write_ell(choice: Choice) -> str:
    tile, splits, width = tile_of(choice), choice.integer("splits"), choice.integer("width")
    unroll, how = _slots(choice), choice.word("load")
    slot = "part" if splits > 1 else ""
    slot = " + ".join(filter(None, [slot, f"u * {splits}" if splits > 1 else "u"]))
    overhang = width % splits != 0
    body = fill(
        """
$partials
int row = $row;
int part = $part;
$column
if (width != $width) return;
int own = min(row, num_rows - 1);
int col[$unroll];
$T value[$unroll];
#pragma unroll
for (int u = 0; u < $unroll; u++) {
  int j = $slot * stride + own;
  col[u] = $load_col;
  value[u] = $load_value;
  $mask
}
$declare
$add
$finish
""",
        partials=_partials(choice, tile),
        row=_row(choice, tile),
        part=_part(tile, splits),
        column=own_column(tile, choice.word("placement")),
        width=width,
        unroll=unroll,
        T=tile.scalar,
        slot=f"min({slot}, {width - 1})" if overhang else (f"({slot})" if "+" in slot else slot),
        load_col=load(how, "col_indices + j"),
        load_value=load(how, "values + j"),
        mask=f"if ({slot} >= {width}) value[u] = 0;" if overhang else "",
        declare=tile.declare(),
        add=add_batch(tile, unroll),
        finish=_join_and_store(choice, tile),
    )
    return program("spmm", choice.element_type, "ell", {}, _launch(choice, tile, body), require={"width": width})


def _splits_fit(choice: Choice) -> bool:
    """A row's threads fill whole blocks; vectors are aligned."""
    return tile_fits(choice) and choice.integer("lanes") * choice.integer("splits") <= choice.integer("block")


def _ell_fits(choice: Choice) -> bool:
    return _splits_fit(choice) and _slots(choice) <= MAX_SLOTS


_SPLIT_PARAMETERS: dict[str, ParameterSpec] = {
    **ONE_CHUNK_PARAMETERS,
    "block": BLOCK,
    "load": LOAD,
    "placement": PLACEMENT,
}

SPMM_ROWS_SPLIT = Family(
    name="spmm_rows_split",
    operation="spmm",
    strategy="Several groups of lanes a row, joined by shuffles and shared memory: no long chain of batches; small "
    "matrices, rows of some length.",
    parameters={
        **_SPLIT_PARAMETERS,
        "splits": OneOf(4, (1, 2, 4, 8, 16, 32)),
        "unroll": OneOf(4, (1, 2, 4, 8)),
        "registers": REGISTERS,
        "index": INDEX,
    },
    suits=lambda pattern: pattern.num_rows < 2**22,
    write=_write_rows_split,
    allows=_splits_fit,
)

SPMM_ELL = Family(
    name="spmm_ell",
    operation="spmm",
    strategy="Rows padded to one width known at compile time: every column is loaded at once, then every row of B; "
    "small matrices with even rows, where one dependent load less counts.",
    parameters={
        **_SPLIT_PARAMETERS,
        "width": IntegerRange(8, 1, 64),
        "splits": OneOf(1, (1, 2, 4, 8, 16)),
        "registers": REGISTERS,
    },
    suits=lambda pattern: (
        pattern.num_rows < 2**22
        and pattern.row_lengths.max() <= 64
        and pattern.row_lengths.max() * pattern.num_rows <= 6 * pattern.nnz
    ),
    write=_write_ell,
    allows=_ell_fits,
)

FAMILIES = (SPMM_ROWS_SPLIT, SPMM_ELL)
