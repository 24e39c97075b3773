"""SpMV over padded formats, ELL and SELL: neighbouring threads own neighbouring rows, so every load is coalesced."""

from sparsesmith.families.csr import LOAD, REGISTERS
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import (
    BYTES,
    Launch,
    c_index_type,
    fill,
    load,
    program,
    scalar,
    vector,
    warp_sum,
)
from sparsesmith.formats.building.windows import REACHES
from sparsesmith.formats.format import OneOf
from sparsesmith.matrix.pattern import Pattern

INDEX = OneOf("i32", ("i32", "u16", "u8", "u16_slot"))
"""`u16`: counted from the slice's smallest column. `u8` and `u16_slot`: from the slot's."""
MAX_ELL_PADDING = 3
SLOTS_TOO_FEW_TO_MATTER = 2**18


def _ell_suits(pattern: Pattern) -> bool:
    """Padding matters once it takes time to read: small matrices wait for latency, not for bytes."""
    slots = int(pattern.row_lengths.max()) * pattern.num_rows
    return slots <= MAX_ELL_PADDING * pattern.nnz or slots <= SLOTS_TOO_FEW_TO_MATTER


def _walk(step: int | str, unroll: int, how: str, choice: Choice, base: str = "", slot_base: str = "") -> str:
    """Adds slots begin, begin + step, ... < end; `unroll` slots at a time, past the end the first again as zero.

    `slot_base`: what the column of slot `$slot` counts from.
    """
    if slot_base:
        return _walk_windows(step, unroll, how, choice, slot_base)
    if unroll == 1:
        return fill(
            """
for (int j = begin; j < end; j += $step) sum += $value * x[$base$col];
""",
            step=step,
            base=base,
            value=load(how, "values + j"),
            col=load(how, "col_indices + j"),
        )
    return fill(
        """
#pragma unroll 1
for (int j = begin; j < end; j += $stride) {
  int col[$unroll];
  $T value[$unroll];
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    int k = j + u * $step < end ? j + u * $step : j;
    col[u] = $col;
    value[u] = $value;
    if (j + u * $step >= end) value[u] = 0;
  }
  #pragma unroll
  for (int u = 0; u < $unroll; u++) sum += value[u] * x[$column];
}
""",
        stride=step * unroll if isinstance(step, int) else f"{unroll} * {step}",
        unroll=unroll,
        step=step,
        T=scalar(choice.element_type),
        col=load(how, "col_indices + k"),
        value=load(how, "values + k"),
        column=f"{base}col[u]",
    )


def _walk_windows(step: int | str, unroll: int, how: str, choice: Choice, slot_base: str) -> str:
    """As `_walk`, where every slot has a base of its own."""
    if unroll == 1:
        return fill(
            """
for (int j = begin; j < end; j += $step) sum += $value * x[$base + $col];
""",
            step=step,
            value=load(how, "values + j"),
            base=fill(slot_base, slot="j"),
            col=load(how, "col_indices + j"),
        )
    return fill(
        """
#pragma unroll 1
for (int j = begin; j < end; j += $stride) {
  int base[$unroll], col[$unroll];
  $T value[$unroll];
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    int k = j + u * $step < end ? j + u * $step : j;
    base[u] = $base;
    col[u] = $col;
    value[u] = $value;
    if (j + u * $step >= end) value[u] = 0;
  }
  #pragma unroll
  for (int u = 0; u < $unroll; u++) sum += value[u] * x[base[u] + col[u]];
}
""",
        stride=step * unroll if isinstance(step, int) else f"{unroll} * {step}",
        unroll=unroll,
        step=step,
        T=scalar(choice.element_type),
        base=fill(slot_base, slot="k"),
        col=load(how, "col_indices + k"),
        value=load(how, "values + k"),
    )


def _write_ell(choice: Choice) -> str:
    block, unroll, how = choice.integer("block"), choice.integer("unroll"), choice.word("load")
    body = fill(
        """
int row = blockIdx.x * $block + threadIdx.x;
if (row >= num_rows) return;
int begin = row, end = width * stride;
$T sum = 0;
$walk
y[row] = sum;
""",
        block=block,
        T=scalar(choice.element_type),
        walk=_walk("stride", unroll, how, choice),
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block})", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "ell", {}, launch)


def _write_ell_fixed(choice: Choice) -> str:
    block, how = choice.integer("block"), choice.word("load")
    body = fill(
        """
int row = blockIdx.x * $block + threadIdx.x;
if (row >= num_rows || width != $width) return;
int col[$width];
$T value[$width];
#pragma unroll
for (int k = 0; k < $width; k++) {
  col[k] = $load_col;
  value[k] = $load_value;
}
$T sum = 0;
#pragma unroll
for (int k = 0; k < $width; k++) sum += value[k] * x[col[k]];
y[row] = sum;
""",
        block=block,
        width=choice.integer("width"),
        T=scalar(choice.element_type),
        load_col=load(how, "col_indices + k * stride + row"),
        load_value=load(how, "values + k * stride + row"),
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block})", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "ell", {}, launch, require={"width": choice.integer("width")})


def _write_ell_parts(choice: Choice) -> str:
    parts, how = choice.integer("parts"), choice.word("load")
    body = fill(
        """
__shared__ $T partials[$parts][32];
int lane = threadIdx.x % 32, part = threadIdx.x / 32;
int row = blockIdx.x * 32 + lane;
int begin = row + part * stride, end = width * stride;
int step = $parts * stride;
$T sum = 0;
$walk
partials[part][lane] = sum;
__syncthreads();
if (part == 0 && row < num_rows) {
  #pragma unroll
  for (int p = 1; p < $parts; p++) sum += partials[p][lane];
  y[row] = sum;
}
""",
        parts=parts,
        T=scalar(choice.element_type),
        walk=_walk("step", choice.integer("unroll"), how, choice),
    )
    launch = Launch("spmv", "ceil_div(num_rows,32)", 32 * parts, body, choice.word("registers"))
    return program("spmv", choice.element_type, "ell", {}, launch)


def _sell_settings(choice: Choice, slice_: int) -> dict[str, int | str]:
    return {"slice": slice_, "sigma": choice.integer("sigma"), "index": choice.word("index")}


def _row(choice: Choice, slot: str) -> str:
    """Row of a lane: unsorted slices need no permutation."""
    return f"int row = {slot};" if choice.integer("sigma") == 1 else f"int row = row_permutation[{slot}];"


def _guard(choice: Choice) -> str:
    return "row < num_rows" if choice.integer("sigma") == 1 else "row >= 0"


def _slice_base(choice: Choice) -> str:
    return "int base = slice_col_base[slice];" if choice.word("index") == "u16" else ""


def _base(choice: Choice) -> str:
    return "base + " if choice.word("index") == "u16" else ""


def _slot_base(choice: Choice, slice_: int) -> str:
    """Read of the base of `$slot`: slots of a slice's lanes share one."""
    return f"__ldg(slot_col_base + ($slot >> {slice_.bit_length() - 1}))" if choice.word("index") in REACHES else ""


def _write_sell(choice: Choice) -> str:
    block, slice_ = choice.integer("block"), choice.integer("slice")
    body = fill(
        """
int slot = blockIdx.x * $block + threadIdx.x;
int slice = slot / $slice;
if (slice >= num_slices) return;
int begin = slice_offsets[slice] + slot % $slice, end = slice_offsets[slice + 1];
$base
$row
$T sum = 0;
$walk
if ($guard) y[row] = sum;
""",
        block=block,
        slice=slice_,
        base=_slice_base(choice),
        row=_row(choice, "slot"),
        T=scalar(choice.element_type),
        walk=_walk(
            slice_,
            choice.integer("unroll"),
            choice.word("load"),
            choice,
            _base(choice),
            _slot_base(choice, slice_),
        ),
        guard=_guard(choice),
    )
    launch = Launch("spmv", f"ceil_div(num_slices*{slice_},{block})", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "sell", _sell_settings(choice, slice_), launch)


def _write_sell_lanes(choice: Choice) -> str:
    block, slice_, lanes = choice.integer("block"), choice.integer("slice"), choice.integer("lanes")
    group = slice_ * lanes
    body = fill(
        """
int slice = (blockIdx.x * $block + threadIdx.x) / $group;
int lane = threadIdx.x % $group;
$T sum = 0;
if (slice < num_slices) {
  int begin = slice_offsets[slice] + lane, end = slice_offsets[slice + 1];
  $base
  $walk
}
$warp_sum
if (lane < $slice && slice < num_slices) {
  $row
  if ($guard) y[row] = sum;
}
""",
        block=block,
        group=group,
        slice=slice_,
        base=_slice_base(choice),
        row=_row(choice, f"slice * {slice_} + lane"),
        T=scalar(choice.element_type),
        walk=_walk(
            group,
            choice.integer("unroll"),
            choice.word("load"),
            choice,
            _base(choice),
            _slot_base(choice, slice_),
        ),
        warp_sum=warp_sum(lanes, lowest=slice_),
        guard=_guard(choice),
    )
    launch = Launch("spmv", f"ceil_div(num_slices,{block // group})", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "sell", _sell_settings(choice, slice_), launch)


def _wide_products(rows: int, base: str) -> str:
    return "\n".join(f"sum[{i}] += value.{'xyzw'[i]} * x[{base}col.{'xyzw'[i]}];" for i in range(rows))


def _wide_walk(choice: Choice, slice_: int) -> str:
    """Adds vectors begin, begin + slice, ... < end to as many sums."""
    rows, how = choice.integer("rows"), choice.word("load")
    names = {
        "slice": slice_,
        "unroll": choice.integer("unroll"),
        "I": vector(c_index_type(choice.word("index")), rows),
        "V": vector(scalar(choice.element_type), rows),
    }
    if choice.word("index") not in REACHES:
        return fill(
            """
#pragma unroll $unroll
for (int j = begin; j < end; j += $slice) {
  $I col = $load_col;
  $V value = $load_value;
  $products
}
""",
            load_col=load(how, f"(const {names['I']}*)(col_indices + j)"),
            load_value=load(how, f"(const {names['V']}*)(values + j)"),
            products=_wide_products(rows, _base(choice)),
            **names,
        )
    return fill(
        """
#pragma unroll 1
for (int j = begin; j < end; j += $stride) {
  int base[$unroll];
  $I col[$unroll];
  $V value[$unroll];
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    int k = j + u * $slice;
    if (k < end) base[u] = $base, col[u] = $load_col, value[u] = $load_value;
  }
  #pragma unroll
  for (int u = 0; u < $unroll; u++)
    if (j + u * $slice < end) {
      $products
    }
}
""",
        stride=slice_ * choice.integer("unroll"),
        base=fill(_slot_base(choice, slice_), slot="k"),
        load_col=load(how, f"(const {names['I']}*)(col_indices + k)"),
        load_value=load(how, f"(const {names['V']}*)(values + k)"),
        products=_wide_products(rows, "base[u] + ").replace("value.", "value[u].").replace("col.", "col[u]."),
        **names,
    )


def _write_sell_wide(choice: Choice) -> str:
    block, rows = choice.integer("block"), choice.integer("rows")
    slice_ = 32 * rows
    body = fill(
        """
int slice = (blockIdx.x * $block + threadIdx.x) / 32;
int lane = threadIdx.x % 32 * $rows;
if (slice >= num_slices) return;
int begin = slice_offsets[slice] + lane, end = slice_offsets[slice + 1];
$base
$T sum[$rows] = {};
$walk
#pragma unroll
for (int i = 0; i < $rows; i++) {
  $row
  if ($guard) y[row] = sum[i];
}
""",
        block=block,
        rows=rows,
        base=_slice_base(choice),
        T=scalar(choice.element_type),
        walk=_wide_walk(choice, slice_),
        row=_row(choice, f"slice * {slice_} + lane + i"),
        guard=_guard(choice),
    )
    launch = Launch("spmv", f"ceil_div(num_slices,{block // 32})", block, body, choice.word("registers"))
    return program("spmv", choice.element_type, "sell", _sell_settings(choice, slice_), launch)


def _lanes_fill_a_warp_at_most(choice: Choice) -> bool:
    return choice.integer("slice") * choice.integer("lanes") <= 32


def _vector_is_16_bytes_at_most(choice: Choice) -> bool:
    return choice.integer("rows") * BYTES[choice.element_type] <= 16


SIGMA = OneOf(1, (1, 64, 256, 1024, 4096, 16384, 0))
UNROLL = OneOf(4, (1, 2, 4, 8))
BLOCK = OneOf(128, (32, 64, 128, 256, 512))

ELL = Family(
    name="ell",
    operation="spmv",
    strategy="One thread a row over columns-major slots, no row offsets to wait for; rows of nearly one length.",
    parameters={"unroll": OneOf(4, (1, 2, 4, 8)), "block": BLOCK, "load": LOAD, "registers": REGISTERS},
    suits=_ell_suits,
    write=_write_ell,
)

ELL_FIXED = Family(
    name="ell_fixed",
    operation="spmv",
    strategy="ELL with the width written into the kernel, so that all loads of a row are in flight at once; small "
    "matrices with short rows.",
    parameters={"width": OneOf(4, tuple(range(1, 33))), "block": BLOCK, "load": LOAD, "registers": REGISTERS},
    suits=lambda pattern: int(pattern.row_lengths.max()) <= 32 and _ell_suits(pattern),
    write=_write_ell_fixed,
)

ELL_PARTS = Family(
    name="ell_parts",
    operation="spmv",
    strategy="ELL with several warps for the same 32 rows, joined in shared memory; few rows of one medium length.",
    parameters={"parts": OneOf(4, (2, 4, 8, 16)), "unroll": UNROLL, "load": LOAD, "registers": REGISTERS},
    suits=lambda pattern: pattern.nnz >= 8 * pattern.num_rows and _ell_suits(pattern),
    write=_write_ell_parts,
)

SELL = Family(
    name="sell",
    operation="spmv",
    strategy="One thread a row inside slices padded to their longest row, sorted within windows of sigma rows; the "
    "workhorse for meshes and stencils.",
    parameters={
        "slice": OneOf(32, (32, 64, 128)),
        "sigma": SIGMA,
        "unroll": UNROLL,
        "block": BLOCK,
        "load": LOAD,
        "registers": REGISTERS,
        "index": INDEX,
    },
    suits=lambda pattern: True,
    write=_write_sell,
)

SELL_LANES = Family(
    name="sell_lanes",
    operation="spmv",
    strategy="Several lanes a row inside narrow slices; medium and long rows, or too few rows to fill the device.",
    parameters={
        "slice": OneOf(8, (4, 8, 16)),
        "lanes": OneOf(4, (2, 4, 8)),
        "sigma": SIGMA,
        "unroll": UNROLL,
        "block": OneOf(128, (64, 128, 256)),
        "load": LOAD,
        "registers": REGISTERS,
        "index": INDEX,
    },
    suits=lambda pattern: pattern.nnz >= 4 * pattern.num_rows,
    write=_write_sell_lanes,
    allows=_lanes_fill_a_warp_at_most,
)

SELL_WIDE = Family(
    name="sell_wide",
    operation="spmv",
    strategy="Each thread owns two or four neighbouring rows and loads their slots as one vector; large matrices bound "
    "by bandwidth.",
    parameters={
        "rows": OneOf(2, (2, 4)),
        "sigma": SIGMA,
        "unroll": OneOf(4, (1, 2, 4)),
        "block": OneOf(128, (64, 128, 256)),
        "load": LOAD,
        "registers": REGISTERS,
        "index": INDEX,
    },
    suits=lambda pattern: pattern.num_rows >= 2048,
    write=_write_sell_wide,
    allows=_vector_is_16_bytes_at_most,
)

FAMILIES = (ELL, ELL_FIXED, ELL_PARTS, SELL, SELL_LANES, SELL_WIDE)
