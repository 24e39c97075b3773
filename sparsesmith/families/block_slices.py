"""SpMV over slices of dense blocks: lanes own block rows, blocks and x come in vector loads, one index a block."""

from sparsesmith.families.csr import INDEX, LOAD, REGISTERS
from sparsesmith.families.diagonals import vector_read
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.residency import (
    KEEP,
    choose_policy,
    load_functions,
    load_kept,
    streams_or_keeps,
    with_functions,
)
from sparsesmith.families.source import BYTES, Launch, fill, load, program, scalar, vector, warp_sum
from sparsesmith.families.structured import EXTENT
from sparsesmith.formats.bsell import vector_of
from sparsesmith.formats.format import OneOf, ParameterValue

MAX_BLOCK_ELEMENTS = 36
MAX_REGISTERS_HELD = 80


def _narrowed(width: int, choice: Choice) -> int:
    """Elements of a vector load of at most 16 bytes."""
    return min(width, 16 // BYTES[choice.element_type])


def _block_loads(choice: Choice, size: int, slice_: int) -> str:
    """The block of slot j to `tile[u]`: planes of neighbouring elements, each coalesced over the lanes."""
    plane = vector_of(size)
    width = _narrowed(plane, choice)
    c_type = vector(scalar(choice.element_type), width)
    offset = f"(j - own) * {size} + (e / {plane} * {slice_} + own) * {plane}" + (f" + e % {plane}" if plane > 1 else "")
    return fill(
        """
#pragma unroll
for (int e = 0; e < $size; e += $width) *($V*)(tile[u] + e) = $value;
""",
        size=size,
        width=width,
        V=c_type,
        value=load_kept(choice, f"(const {c_type}*)(values + {offset})"),
    )


def _x_loads(choice: Choice, cols: int) -> str:
    """The block's part of x to `right`; zero beyond the last column."""
    if choice.word("edge") == "cut":
        width, c_type = 1, scalar(choice.element_type)
        entry = "col[u] + k < num_cols ? x[col[u] + k] : 0"
    else:
        width = _narrowed(vector_of(cols), choice)
        c_type = vector(scalar(choice.element_type), width)
        entry = f"{vector_read(choice)}((const {c_type}*)(x + col[u] + k))"
    return fill(
        """
#pragma unroll
for (int k = 0; k < $cols; k += $width) *($V*)(right + k) = $entry;
""",
        cols=cols,
        width=width,
        V=c_type,
        entry=entry,
    )


def _write_bsell(choice: Choice) -> str:
    block, lanes, narrow = choice.integer("block"), choice.integer("lanes"), choice.word("index") == "u16"
    rows, cols, slice_ = choice.integer("block_rows"), choice.integer("block_cols"), 32 // lanes
    column = load(choice.word("load"), "block_col_indices + j")
    place = f"slice * {slice_} + own"
    natural = choice.integer("sigma") == 1
    body = fill(
        """
int slice = (blockIdx.x * $block + threadIdx.x) / 32;
if (slice >= num_slices$cut) return;
int lane = threadIdx.x % 32, own = lane % $slice;
int begin = slice_offsets[slice], end = slice_offsets[slice + 1];
$base
$hint
$T sum[$rows] = {};
for (int first = begin + lane; first < end; first += $stride) {
  int col[$unroll];
  __align__(16) $T tile[$unroll][$size], right[$cols];
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    int j = first + u * 32;
    if (j >= end) continue;
    col[u] = $col * $cols;
    $block_loads
  }
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    if (first + u * 32 >= end) continue;
    $x_loads
    #pragma unroll
    for (int e = 0; e < $size; e++) sum[e / $cols] += tile[u][e] * right[e % $cols];
  }
}
$sums
int block_row = $block_row;
#pragma unroll
for (int i = 0; i < $rows; i++)
  if ($guard) y[block_row * $rows + i] = sum[i];
""",
        block=block,
        slice=slice_,
        base="int base = slice_col_base[slice];" if narrow else "",
        hint=choose_policy(choice),
        T=scalar(choice.element_type),
        rows=rows,
        cols=cols,
        size=rows * cols,
        unroll=choice.integer("unroll"),
        stride=32 * choice.integer("unroll"),
        cut="" if choice.word("edge") == "cut" else f" || num_cols % {cols}",
        col=f"(base + {column})" if narrow else column,
        block_loads=_block_loads(choice, rows * cols, slice_),
        x_loads=_x_loads(choice, cols),
        sums=_sums(rows, lanes, slice_),
        block_row=place if natural else f"block_row_permutation[slice * {slice_} + own]",
        guard=_guard(rows, lanes, slice_, natural),
    )
    launch = Launch("spmv", f"ceil_div(num_slices,{block // 32})", block, body, choice.word("registers"))
    settings: dict[str, ParameterValue] = {"block_rows": rows, "block_cols": cols, "slice": slice_}
    settings |= {"sigma": choice.integer("sigma"), "index": choice.word("index")}
    text = program("spmv", choice.element_type, "bsell", settings, launch)
    return with_functions(text, load_functions(choice, _narrowed(vector_of(rows * cols), choice)))


def _sums(rows: int, lanes: int, slice_: int) -> str:
    if lanes == 1:
        return ""
    return fill(
        """
#pragma unroll
for (int i = 0; i < $rows; i++) {
  $warp_sum
}
""",
        rows=rows,
        warp_sum=warp_sum(lanes, "sum[i]", lowest=slice_),
    )


def _guard(rows: int, lanes: int, slice_: int, natural: bool) -> str:
    first = f"lane < {slice_} && " if lanes > 1 else ""
    held = "" if natural else "block_row >= 0 && "
    return f"{first}{held}block_row * {rows} + i < num_rows"


def _goes_together(choice: Choice) -> bool:
    size = choice.integer("block_rows") * choice.integer("block_cols")
    held = size * choice.integer("unroll") * BYTES[choice.element_type] // 4
    return 1 < size <= MAX_BLOCK_ELEMENTS and held <= MAX_REGISTERS_HELD and streams_or_keeps(choice)


BSELL = Family(
    name="bsell",
    operation="spmv",
    strategy="Dense blocks in slices of block rows: a lane or a few a block row, vector loads of blocks and x that are "
    "coalesced across block rows; finite elements with several unknowns a node.",
    parameters={
        "block_rows": EXTENT,
        "block_cols": EXTENT,
        "lanes": OneOf(1, (1, 2, 4, 8)),
        "sigma": OneOf(1, (1, 256, 4096)),
        "unroll": OneOf(4, (1, 2, 4, 8)),
        "edge": OneOf("whole", ("whole", "cut")),
        "block": OneOf(128, (64, 128, 256)),
        "load": LOAD,
        "keep": KEEP,
        "registers": REGISTERS,
        "index": INDEX,
    },
    suits=lambda pattern: pattern.nnz >= 2 * pattern.num_rows,
    write=_write_bsell,
    allows=_goes_together,
)

"""`edge`: whether the last block column is `cut` by the matrix's edge; where none is, x is read in vectors."""

FAMILIES = (BSELL,)
