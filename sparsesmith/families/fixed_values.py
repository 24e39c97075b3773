"""SpMV for fixed values: equal rows share one row of a table, equal values need none.

These families are proposed only where a request fixes the values; they stand apart from the catalogue for that reason.
"""

from collections.abc import Mapping

from sparsesmith.families.compression import with_constant, with_row_dictionary
from sparsesmith.families.csr import INDEX, LOAD, REGISTERS
from sparsesmith.families.dependency import with_dependency
from sparsesmith.families.diagonals import OFFSETS, vector_read
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import BYTES, Launch, fill, load, program, scalar, vector
from sparsesmith.families.structured import dia_suits
from sparsesmith.formats.format import OneOf, numbers
from sparsesmith.formats.values.storage import Code
from sparsesmith.matrix.pattern import Pattern

MAX_WIDTH = 32
MAX_REGISTER_BYTES = 512
"""Of the entries of x that a thread holds."""
CODE = OneOf("u8", ("u8", "u16"))
BLOCK = OneOf(128, (32, 64, 128, 256, 512))
WIDTH = OneOf(5, tuple(range(1, MAX_WIDTH + 1)))


def _rows_suit_ell(pattern: Pattern) -> bool:
    longest = int(pattern.row_lengths.max())
    return longest <= MAX_WIDTH and longest * pattern.num_rows <= 2 * pattern.nnz + 4096


def _fits_registers(choice: Choice) -> bool:
    count = len(numbers(choice.word("offsets")))
    return count * choice.integer("rows") * BYTES[choice.element_type] <= MAX_REGISTER_BYTES


def _code(choice: Choice) -> Code:
    return "u8" if choice.word("code") == "u8" else "u16"


def has_no_empty_row(pattern: Pattern) -> bool:
    return bool(pattern.row_lengths.all())


def _write_dia_rows(choice: Choice) -> str:
    block, rows, offsets = choice.integer("block"), choice.integer("rows"), numbers(choice.word("offsets"))
    body = fill(
        """
constexpr int offsets[] = {$offsets};
if (num_diagonals != $count) return;
int start = blockIdx.x * $tile + threadIdx.x;
int row[$rows], code[$rows];
#pragma unroll
for (int r = 0; r < $rows; r++) {
  row[r] = min(start + r * $block, num_rows - 1);
  code[r] = $load_code;
}
$T value[$count], right[$rows][$count];
#pragma unroll
for (int d = 0; d < $count; d++) value[d] = row_values[code[0] * $count + d];
#pragma unroll
for (int r = 0; r < $rows; r++) {
  #pragma unroll
  for (int d = 0; d < $count; d++) {
    unsigned col = row[r] + offsets[d];
    right[r][d] = col < num_cols ? x[col] : 0;
  }
}
#pragma unroll
for (int r = 0; r < $rows; r++) {
  $renew
  $T sum = 0;
  #pragma unroll
  for (int d = 0; d < $count; d++) sum += value[d] * right[r][d];
  if (start + r * $block < num_rows) y[start + r * $block] = sum;
}
""",
        offsets=", ".join(map(str, offsets)),
        count=len(offsets),
        block=block,
        rows=rows,
        tile=block * rows,
        T=scalar(choice.element_type),
        load_code=load(choice.word("load"), "row_codes + row[r]"),
        renew=_RENEW.format(count=len(offsets)) if rows > 1 else "",
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block * rows})", block, body, choice.word("registers"))
    return with_row_dictionary(
        program("spmv", choice.element_type, "dia", {}, launch, require={"num_diagonals": len(offsets)}), _code(choice)
    )


def _write_dia_rows_wide(choice: Choice) -> str:
    block, rows, offsets = choice.integer("block"), choice.integer("rows"), numbers(choice.word("offsets"))
    c_type = scalar(choice.element_type)
    wide = vector(c_type, rows)
    body = fill(
        """
constexpr int offsets[] = {$offsets};
int row = (blockIdx.x * $block + threadIdx.x) * $rows;
if (row >= num_rows || num_diagonals != $count) return;
bool whole = row >= $below && row < num_cols - $above && row + $rows <= num_rows;
$C codes = {};
if (whole) codes = $load_codes;
int code[$rows] = {$codes};
$T value[$count];
#pragma unroll
for (int d = 0; d < $count; d++) value[d] = row_values[code[0] * $count + d];
if (whole) {
  const $V* near = (const $V*)x + row / $rows;
  $T right[$count][$rows], sum[$rows] = {};
  #pragma unroll
  for (int d = 0; d < $count; d++) {
    #pragma unroll
    for (int i = 0; i < $rows; i++)
      right[d][i] = part($read(near + (offsets[d] + i >> $shift)), offsets[d] + i & $mask);
  }
  if ($same) {
    #pragma unroll
    for (int d = 0; d < $count; d++) {
      #pragma unroll
      for (int i = 0; i < $rows; i++) sum[i] += value[d] * right[d][i];
    }
  } else {
    #pragma unroll
    for (int d = 0; d < $count; d++) {
      #pragma unroll
      for (int i = 0; i < $rows; i++) sum[i] += row_values[code[i] * $count + d] * right[d][i];
    }
  }
  *($V*)(y + row) = make_$V($sums);
} else {
  for (int i = row; i < min(row + $rows, num_rows); i++) {
    $T sum = 0;
    for (int d = 0; d < $count; d++) {
      unsigned col = i + diagonal_offsets[d];
      if (col < num_cols) sum += row_values[row_codes[i] * $count + d] * x[col];
    }
    y[i] = sum;
  }
}
""",
        offsets=", ".join(map(str, offsets)),
        count=len(offsets),
        block=block,
        rows=rows,
        shift=rows.bit_length() - 1,
        mask=rows - 1,
        below=max(0, -(offsets[0] // rows) * rows),
        above=max(0, ((offsets[-1] + rows - 1) // rows + 1) * rows - 1),
        T=c_type,
        V=wide,
        C=_code_vector(choice, rows),
        read=vector_read(choice),
        load_codes=load(choice.word("load"), f"(const {_code_vector(choice, rows)}*)(row_codes + row)"),
        codes=", ".join(f"codes.{field}" for field in "xyzw"[:rows]),
        same=" && ".join(f"code[0] == code[{i}]" for i in range(1, rows)),
        sums=", ".join(f"sum[{i}]" for i in range(rows)),
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block * rows})", block, body, choice.word("registers"))
    text = with_row_dictionary(
        program("spmv", choice.element_type, "dia", {}, launch, require={"num_diagonals": len(offsets)}), _code(choice)
    )
    return text.replace('extern "C"', _part(c_type, wide, rows) + '\nextern "C"')


_RENEW = """if (r > 0 && code[r] != code[max(r - 1, 0)]) {{
  #pragma unroll
  for (int d = 0; d < {count}; d++) value[d] = row_values[code[r] * {count} + d];
}}"""


def _code_vector(choice: Choice, rows: int) -> str:
    return ("uchar" if _code(choice) == "u8" else "ushort") + str(rows)


def _part(c_type: str, wide: str, rows: int) -> str:
    """A device function that picks one element of a vector; the choice is known when it is compiled."""
    picked = "k == 0 ? v.x : v.y" if rows == 2 else "k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w"
    return f"__device__ __forceinline__ {c_type} part({wide} v, int k) {{ return {picked}; }}"


def _write_dia_rows_long(choice: Choice) -> str:
    block = choice.integer("block")
    body = fill(
        """
int row = blockIdx.x * $block + threadIdx.x;
if (row >= num_rows) return;
const $T* value = row_values + (long long)$load_code * num_diagonals;
$T sum = 0;
#pragma unroll $unroll
for (int d = 0; d < num_diagonals; d++) {
  int col = row + diagonal_offsets[d];
  if (col >= 0 && col < num_cols) sum += value[d] * x[col];
}
y[row] = sum;
""",
        block=block,
        unroll=choice.integer("unroll"),
        T=scalar(choice.element_type),
        load_code=load(choice.word("load"), "row_codes + row"),
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block})", block, body, choice.word("registers"))
    return with_row_dictionary(program("spmv", choice.element_type, "dia", {}, launch), _code(choice))


def _write_ell_rows(choice: Choice) -> str:
    block = choice.integer("block")
    body = fill(
        """
int row = blockIdx.x * $block + threadIdx.x;
if (row >= num_rows || width != $width) return;
int col[$width];
#pragma unroll
for (int k = 0; k < $width; k++) col[k] = $load_col;
int code = $load_code;
$T value[$width], sum = 0;
#pragma unroll
for (int k = 0; k < $width; k++) value[k] = row_values[code * $width + k];
#pragma unroll
for (int k = 0; k < $width; k++) sum += value[k] * x[col[k]];
y[row] = sum;
""",
        block=block,
        width=choice.integer("width"),
        T=scalar(choice.element_type),
        load_col=load(choice.word("load"), "col_indices + k * stride + row"),
        load_code=load(choice.word("load"), "row_codes + row"),
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block})", block, body, choice.word("registers"))
    return with_row_dictionary(
        program("spmv", choice.element_type, "ell", {}, launch, require={"width": choice.integer("width")}),
        _code(choice),
    )


def _write_sell_constant(choice: Choice) -> str:
    block, slice_, narrow = choice.integer("block"), choice.integer("slice"), choice.word("index") == "u16"
    sorted_ = choice.integer("sigma") != 1
    body = fill(
        """
int slot = blockIdx.x * $block + threadIdx.x;
int slice = slot / $slice;
if (slice >= num_slices) return;
int begin = slice_offsets[slice] + slot % $slice;
int end = slice_offsets[slice + 1] - $slice + slot % $slice;
$base
$row
int last = -1;
$T sum = 0;
#pragma unroll 1
for (int j = begin; j <= end; j += $stride) {
  int col[$unroll];
  $T right[$unroll];
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    int k = min(j + u * $slice, end);
    col[u] = $load_col;
  }
  #pragma unroll
  for (int u = 0; u < $unroll; u++) right[u] = x[$column];
  #pragma unroll
  for (int u = 0; u < $unroll; u++) {
    if (col[u] != last) sum += right[u];
    last = col[u];
  }
}
if ($guard) y[row] = sum * constant_value[0];
""",
        block=block,
        slice=slice_,
        base="int base = slice_col_base[slice];" if narrow else "",
        row="int row = row_permutation[slot];" if sorted_ else "int row = slot;",
        T=scalar(choice.element_type),
        unroll=choice.integer("unroll"),
        stride=slice_ * choice.integer("unroll"),
        load_col=load(choice.word("load"), "col_indices + k"),
        column="base + col[u]" if narrow else "col[u]",
        guard="row >= 0" if sorted_ else "row < num_rows",
    )
    settings: Mapping[str, int | str] = {
        "slice": slice_,
        "sigma": choice.integer("sigma"),
        "index": choice.word("index"),
    }
    launch = Launch("spmv", f"ceil_div(num_slices*{slice_},{block})", block, body, choice.word("registers"))
    return with_constant(program("spmv", choice.element_type, "sell", settings, launch))


DIA_ROWS = Family(
    name="dia_rows",
    operation="spmv",
    strategy="Diagonals, and a code for each row into a table of the distinct rows: stencils read x and a byte a row.",
    parameters={
        "offsets": OFFSETS,
        "rows": OneOf(1, (1, 2, 4)),
        "block": BLOCK,
        "load": LOAD,
        "registers": REGISTERS,
        "code": CODE,
    },
    suits=dia_suits,
    write=_write_dia_rows,
    allows=_fits_registers,
)

DIA_ROWS_WIDE = Family(
    name="dia_rows_wide",
    operation="spmv",
    strategy="As dia_rows with two or four rows a thread: vector loads of x, which neighbouring diagonals share.",
    parameters={
        "offsets": OFFSETS,
        "rows": OneOf(4, (2, 4)),
        "block": OneOf(128, (64, 128, 256, 512)),
        "load": LOAD,
        "registers": REGISTERS,
        "code": CODE,
    },
    suits=lambda pattern: pattern.num_rows >= 2048 and dia_suits(pattern),
    write=_write_dia_rows_wide,
    allows=lambda choice: _fits_registers(choice) and choice.integer("rows") * BYTES[choice.element_type] <= 16,
)

DIA_ROWS_LONG = Family(
    name="dia_rows_long",
    operation="spmv",
    strategy="As dia_rows, diagonal by diagonal: for more diagonals than fit into registers.",
    parameters={
        "unroll": OneOf(4, (2, 4, 8, 16)),
        "block": BLOCK,
        "load": LOAD,
        "registers": REGISTERS,
        "code": CODE,
    },
    suits=dia_suits,
    write=_write_dia_rows_long,
)

ELL_ROWS = Family(
    name="ell_rows",
    operation="spmv",
    strategy="ELL columns, and for each row a code into a table of the distinct rows: meshes whose rows repeat.",
    parameters={"width": WIDTH, "block": BLOCK, "load": LOAD, "registers": REGISTERS, "code": CODE},
    suits=_rows_suit_ell,
    write=_write_ell_rows,
)

SELL_CONSTANT = Family(
    name="sell_constant",
    operation="spmv",
    strategy="Sliced ELL without values, padding told by its repeated column: unweighted graphs and meshes.",
    parameters={
        "slice": OneOf(32, (32, 64)),
        "sigma": OneOf(1, (1, 64, 256, 1024, 4096, 16384, 0)),
        "unroll": OneOf(4, (1, 2, 4, 8)),
        "block": BLOCK,
        "load": LOAD,
        "registers": REGISTERS,
        "index": INDEX,
    },
    suits=has_no_empty_row,
    write=_write_sell_constant,
)

FIXED_FAMILIES: Mapping[str, Family] = {
    family.name: with_dependency(family) for family in (DIA_ROWS, DIA_ROWS_WIDE, DIA_ROWS_LONG, ELL_ROWS, SELL_CONSTANT)
}
"""By name; every one needs fixed values."""
