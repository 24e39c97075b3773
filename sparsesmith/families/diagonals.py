"""SpMV over diagonals whose offsets stand in the program: nothing has to be read before x and the values can be."""

from sparsesmith.families.csr import LOAD, REGISTERS
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.residency import (
    KEEP,
    choose_policy,
    load_functions,
    load_kept,
    streams_or_keeps,
    with_functions,
)
from sparsesmith.families.source import BYTES, Launch, fill, program, scalar, vector
from sparsesmith.families.structured import dia_suits
from sparsesmith.formats.format import NumberList, OneOf, numbers

MAX_LITERAL_DIAGONALS = 64
REACH = 2**31 - 1 - 2**20

OFFSETS = NumberList("-1,0,1", -REACH, REACH, MAX_LITERAL_DIAGONALS)
"""Column minus row of every diagonal: the program is for patterns with just these."""


def _write_literal(choice: Choice) -> str:
    block, slice_, offsets = choice.integer("block"), choice.integer("slice"), numbers(choice.word("offsets"))
    count = len(offsets)
    slot = f"(row / {slice_} * {count} + d) * {slice_} + row % {slice_}" if slice_ else "d * num_rows + row"
    body = fill(
        """
constexpr int offsets[] = {$offsets};
int row = blockIdx.x * $block + threadIdx.x;
if (row >= num_rows || num_diagonals != $count) return;
$hint
$T value[$count], sum = 0;
#pragma unroll
for (int d = 0; d < $count; d++) value[d] = $value;
#pragma unroll
for (int d = 0; d < $count; d++) {
  unsigned col = row + offsets[d];
  sum += value[d] * (col < num_cols ? x[col] : 0);
}
y[row] = sum;
""",
        offsets=", ".join(map(str, offsets)),
        count=count,
        block=block,
        T=scalar(choice.element_type),
        hint=choose_policy(choice),
        value=load_kept(choice, f"values + {slot}"),
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block})", block, body, choice.word("registers"))
    text = program(
        "spmv", choice.element_type, "dia", {"slice": slice_}, launch, require={"num_diagonals": len(offsets)}
    )
    return with_functions(text, load_functions(choice, 1))


def vector_read(choice: Choice) -> str:
    """How x is read in vectors: as a constant, unless kernels before may still be writing it."""
    return "__ldca" if choice.values.get("dependency") == "programmatic" else "__ldg"


def _part(c_type: str, wide: str, rows: int) -> str:
    """A device function that picks one element of a vector; the choice is known when it is compiled."""
    picked = "k == 0 ? v.x : v.y" if rows == 2 else "k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w"
    return f"__device__ __forceinline__ {c_type} part({wide} v, int k) {{ return {picked}; }}"


def _write_literal_wide(choice: Choice) -> str:
    block, rows, offsets = choice.integer("block"), choice.integer("rows"), numbers(choice.word("offsets"))
    c_type = scalar(choice.element_type)
    wide, slice_ = vector(c_type, rows), 32 * rows
    body = fill(
        """
constexpr int offsets[] = {$offsets};
int row = (blockIdx.x * $block + threadIdx.x) * $rows;
if (row >= num_rows || num_diagonals != $count) return;
const $V* own = (const $V*)(values + row / $slice * $slice_slots + row % $slice);
$hint
$T sum[$rows] = {};
if (row >= $below && row < num_cols - $above) {
  const $V* near = (const $V*)x + row / $rows;
  #pragma unroll
  for (int d = 0; d < $count; d++) {
    $V value = $value;
    #pragma unroll
    for (int i = 0; i < $rows; i++)
      sum[i] += part(value, i) * part($read(near + (offsets[d] + i >> $shift)), offsets[d] + i & $mask);
  }
} else {
  for (int d = 0; d < $count; d++) {
    $V value = own[d * 32];
    #pragma unroll
    for (int i = 0; i < $rows; i++) {
      unsigned col = row + i + diagonal_offsets[d];
      if (col < num_cols) sum[i] += part(value, i) * x[col];
    }
  }
}
if (row + $rows <= num_rows) *($V*)(y + row) = make_$V($sums);
else {
  #pragma unroll
  for (int i = 0; i < $rows; i++)
    if (row + i < num_rows) y[row + i] = sum[i];
}
""",
        offsets=", ".join(map(str, offsets)),
        count=len(offsets),
        block=block,
        rows=rows,
        shift=rows.bit_length() - 1,
        mask=rows - 1,
        slice=slice_,
        slice_slots=slice_ * len(offsets),
        below=max(0, -(offsets[0] // rows) * rows),
        above=max(0, ((offsets[-1] + rows - 1) // rows + 1) * rows - 1),
        T=c_type,
        V=wide,
        hint=choose_policy(choice),
        value=load_kept(choice, "own + d * 32"),
        read=vector_read(choice),
        sums=", ".join(f"sum[{i}]" for i in range(rows)),
    )
    launch = Launch("spmv", f"ceil_div(num_rows,{block * rows})", block, body, choice.word("registers"))
    text = program(
        "spmv", choice.element_type, "dia", {"slice": slice_}, launch, require={"num_diagonals": len(offsets)}
    )
    return with_functions(text, _part(c_type, wide, rows), load_functions(choice, rows))


def _vector_is_16_bytes_at_most(choice: Choice) -> bool:
    return streams_or_keeps(choice) and choice.integer("rows") * BYTES[choice.element_type] <= 16


DIA_LITERAL = Family(
    name="dia_literal",
    operation="spmv",
    strategy="Diagonals with their offsets written into the kernel: x and the values are loaded at once; stencils and "
    "bands, latency bound or large.",
    parameters={
        "offsets": OFFSETS,
        "slice": OneOf(0, (0, 32, 128)),
        "block": OneOf(128, (32, 64, 128, 256, 512)),
        "load": LOAD,
        "keep": KEEP,
        "registers": REGISTERS,
    },
    suits=dia_suits,
    write=_write_literal,
    allows=streams_or_keeps,
)

DIA_LITERAL_WIDE = Family(
    name="dia_literal_wide",
    operation="spmv",
    strategy="Each thread owns two or four rows: vector loads of values and of x, which neighbouring diagonals share; "
    "large stencils and bands.",
    parameters={
        "offsets": OFFSETS,
        "rows": OneOf(4, (2, 4)),
        "block": OneOf(128, (64, 128, 256, 512)),
        "load": LOAD,
        "keep": KEEP,
        "registers": REGISTERS,
    },
    suits=lambda pattern: pattern.num_rows >= 2048 and dia_suits(pattern),
    write=_write_literal_wide,
    allows=_vector_is_16_bytes_at_most,
)

FAMILIES = (DIA_LITERAL, DIA_LITERAL_WIDE)
