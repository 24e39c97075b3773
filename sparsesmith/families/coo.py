"""SpMV over equal runs of nonzeros with a segmented sum across each warp."""

from dataclasses import dataclass

from sparsesmith.families.csr import INDEX, LOAD, REGISTERS
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import (
    BYTES,
    Launch,
    fill,
    load,
    program,
    scalar,
    vector,
    zero_output,
)
from sparsesmith.formats.format import OneOf


def _vector_copies(array: str, source: str, c_type: str, width: int, items: int, how: str) -> str:
    wide = vector(c_type, width)
    if width == 1:
        return "\n".join(f"{array}[{k}] = {load(how, f'{source} + start + {k}')};" for k in range(items))
    return "\n".join(
        f"*({wide}*)({array} + {k}) = {load(how, f'(const {wide}*)({source} + start + {k})')};"
        for k in range(0, items, width)
    )


@dataclass(frozen=True)
class Coordinates:
    """Where a kernel finds coordinates that are sorted by row, and what it does with a sum."""

    count: str
    rows: str
    cols: str
    c_index: str
    values: str
    put: str
    """`=` where the output holds nothing yet but zeros, `+=` where it holds a part of each sum."""


def segmented_sum(choice: Choice, source: Coordinates) -> str:
    """A kernel body that adds all products to y; of what `choice` says it needs block, items and load."""
    block, items, how = choice.integer("block"), choice.integer("items"), choice.word("load")
    c_type = scalar(choice.element_type)
    value_width = min(items, 16 // BYTES[choice.element_type])
    return fill(
        """
int lane = threadIdx.x % 32;
int start = (blockIdx.x * $block + threadIdx.x) * $items;
__align__(16) int row[$items];
__align__(16) $I col[$items];
__align__(16) $T value[$items];
if (start + $items <= $count) {
  $rows
  $cols
  $values
} else {
  #pragma unroll
  for (int k = 0; k < $items; k++) {
    int j = min(start + k, $count - 1);
    row[k] = $row_array[j];
    col[k] = $col_array[j];
    value[k] = $value_array[j];
    if (start + k >= $count) value[k] = 0;
  }
}
$T gathered[$items];
#pragma unroll
for (int k = 0; k < $items; k++) gathered[k] = x[col[k]];
int warp_row = __shfl_sync(0xffffffff, row[0], 0);
int open = row[0];
$T head = 0, sum = 0;
#pragma unroll
for (int k = 0; k < $items; k++) {
  if (row[k] != open) {
    if (open == row[0]) head = sum;
    else y[open] $put sum;
    open = row[k];
    sum = 0;
  }
  sum += value[k] * gathered[k];
}
#pragma unroll
for (int step = 1; step < 32; step *= 2) {
  $T other = __shfl_up_sync(0xffffffff, sum, step);
  int other_row = __shfl_up_sync(0xffffffff, open, step);
  if (lane >= step && other_row == open) sum += other;
}
$T before = __shfl_up_sync(0xffffffff, sum, 1);
int before_row = __shfl_up_sync(0xffffffff, open, 1);
int after_row = __shfl_down_sync(0xffffffff, row[0], 1);
if (row[0] != open) {
  if (lane > 0 && before_row == row[0]) head += before;
  if (row[0] == warp_row) atomicAdd(y + row[0], head);
  else y[row[0]] $put head;
}
if (lane == 31 || after_row != open) {
  if (lane == 31 || open == warp_row) atomicAdd(y + open, sum);
  else y[open] $put sum;
}
""",
        block=block,
        items=items,
        count=source.count,
        I=source.c_index,
        T=c_type,
        row_array=source.rows,
        col_array=source.cols,
        value_array=source.values,
        put=source.put,
        rows=_vector_copies("row", source.rows, "int", min(items, 4), items, how),
        cols=_vector_copies("col", source.cols, source.c_index, min(items, 4), items, how),
        values=_vector_copies("value", source.values, c_type, value_width, items, how),
    )


def _write_segmented(choice: Choice) -> str:
    block, items = choice.integer("block"), choice.integer("items")
    c_index = "int" if choice.word("index") == "i32" else "unsigned short"
    body = segmented_sum(choice, Coordinates("nnz", "row_indices", "col_indices", c_index, "values", "="))
    return program(
        "spmv",
        choice.element_type,
        "coo",
        {"index": choice.word("index")},
        zero_output("spmv", 1),
        Launch("spmv", f"ceil_div(nnz,{block * items})", block, body, choice.word("registers")),
    )


COO_SEGMENTED = Family(
    name="coo_segmented",
    operation="spmv",
    strategy="Each lane takes a short run of nonzeros, a segmented scan joins runs of a row, atomics join warps; "
    "perfect balance for very uneven or mostly empty rows.",
    parameters={
        "items": OneOf(4, (1, 2, 4, 8)),
        "block": OneOf(256, (64, 128, 256)),
        "load": LOAD,
        "registers": REGISTERS,
        "index": INDEX,
    },
    suits=lambda pattern: True,
    write=_write_segmented,
)

FAMILIES = (COO_SEGMENTED,)
