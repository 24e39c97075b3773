"""SpMV over HYB: a thread a row over a few slots, others over the remainder; short rows and a few outliers."""

from sparsesmith.families.coo import Coordinates, segmented_sum
from sparsesmith.families.csr import INDEX, LOAD, REGISTERS
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.source import Launch, fill, load, program, scalar
from sparsesmith.formats.format import OneOf, ParameterSpec, ParameterValue
from sparsesmith.matrix.pattern import Pattern

WARP = 32
MOST_IN_FLIGHT = 16
HEAVY_IN_FLIGHT = 8
WIDEST = 32
HEAVY = (0, *(1 << power for power in range(11)))


def _is_narrow(choice: Choice) -> bool:
    return choice.word("index") == "u16"


def batch_of(width: int) -> int:
    """Slots of a row that are loaded together: all, or equal shares."""
    return -(-width // -(-width // MOST_IN_FLIGHT))


def _loads(choice: Choice, batch: int, step: str) -> str:
    """Columns and values of a batch, as many as the thread has left."""
    how = choice.word("load")
    slot = f"slot + {step} * step" if step == "u" else f"slot + ({step}) * step"
    col = load(how, f"cols + {slot}")
    if _is_narrow(choice):
        col = f"is_rest ? {load(how, f'rest_cols + {slot}')} : {load(how, f'col_indices + {slot}')}"
    return fill(
        """
#pragma unroll
for (int u = 0; u < $batch; u++)
  if ($step < steps) col[u] = $col, value[u] = $value;
""",
        batch=batch,
        step=step,
        col=col,
        value=load(how, f"own_values + {slot}"),
    )


def _products(choice: Choice, batch: int, step: str) -> str:
    return fill(
        """
#pragma unroll
for (int u = 0; u < $batch; u++)
  if ($step < steps) sum += value[u] * x[$base_col];
""",
        batch=batch,
        step=step,
        base_col="base + col[u]" if _is_narrow(choice) else "col[u]",
    )


def _item(choice: Choice) -> str:
    """Which row of the remainder a thread serves, and with how many others: the heaviest have a block each."""
    block, lanes, heavy = choice.integer("block"), choice.integer("lanes"), choice.integer("heavy")
    rows, shift = block // lanes, lanes.bit_length() - 1
    if heavy == 0:
        return fill(
            """
int rest_blocks = (num_rest_rows + $past) / $rows, shift = $shift;
int item = blockIdx.x * $rows + threadIdx.x / $lanes;
""",
            past=rows - 1,
            rows=rows,
            shift=shift,
            lanes=lanes,
        )
    return fill(
        """
int rest_blocks = $heavy + (max(num_rest_rows - $heavy, 0) + $past) / $rows, shift = $shift;
int item = $heavy + (int(blockIdx.x) - $heavy) * $rows + threadIdx.x / $lanes;
if (blockIdx.x < $heavy) item = blockIdx.x, shift = $block_shift;
""",
        heavy=heavy,
        past=rows - 1,
        rows=rows,
        shift=shift,
        lanes=lanes,
        block_shift=block.bit_length() - 1,
    )


def _block_sum(choice: Choice) -> str:
    block, heavy = choice.integer("block"), choice.integer("heavy")
    if heavy == 0:
        return ""
    return fill(
        """
if (blockIdx.x < $heavy) {
  if (threadIdx.x % 32 == 0) partials[threadIdx.x / 32] = sum;
  __syncthreads();
  for (int w = 1; w < $warps && lane == 0; w++) sum += partials[w];
}
""",
        heavy=heavy,
        warps=block // WARP,
    )


def _further_batch(choice: Choice) -> int:
    """Slots loaded together after the first batch: heavy rows have many of them."""
    batch = batch_of(choice.integer("width"))
    return max(batch, HEAVY_IN_FLIGHT) if choice.integer("heavy") else batch


def _more(choice: Choice, first: int) -> str:
    """Further batches of whoever has more slots than one."""
    batch = _further_batch(choice)
    return fill(
        """
#pragma unroll 1
for (int start = $first; start < steps; start += $batch) {
  $loads
  $products
}
""",
        first=first,
        batch=batch,
        loads=_loads(choice, batch, "start + u"),
        products=_products(choice, batch, "start + u"),
    )


def _write_hyb(choice: Choice) -> str:
    block, width, heavy = choice.integer("block"), choice.integer("width"), choice.integer("heavy")
    batch, c_type = batch_of(width), scalar(choice.element_type)
    body = fill(
        """
$partials
$item
bool is_rest = blockIdx.x < rest_blocks;
int row = (int(blockIdx.x) - rest_blocks) * $block + threadIdx.x, lane = 0;
int slot = row, step = stride, steps = row < num_rows ? $width : 0, apart = 0;
$base
if (is_rest) {
  step = 1 << shift, steps = 0, row = -1;
  lane = threadIdx.x & step - 1;
  if (item < num_rest_rows) {
    row = rest_rows[item];
    slot = rest_offsets[item] + lane;
    steps = rest_offsets[item + 1] - slot + step - 1 >> shift;
  }
} else if (steps > 0) {
  apart = rest_mask[row / 32];
}
$cols
const $T* own_values = is_rest ? values + $width * stride : values;
int col[$most];
$T value[$most], sum = 0;
$loads
if (apart >> (row & 31) & 1) steps = 0, row = -1;
$products
$more
if (is_rest)
  for (int half = min(step, 32) / 2; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffff, sum, half);
$block_sum
if (row >= 0 && row < num_rows && lane == 0) y[row] = sum;
""",
        partials=f"__shared__ {c_type} partials[{block // WARP}];" if heavy else "",
        item=_item(choice),
        block=block,
        width=width,
        base="int base = is_rest || steps == 0 ? 0 : slice_col_base[row / 32];" if _is_narrow(choice) else "",
        cols="" if _is_narrow(choice) else "const int* cols = is_rest ? rest_cols : col_indices;",
        T=c_type,
        most=_further_batch(choice),
        loads=_loads(choice, batch, "u"),
        products=_products(choice, batch, "u"),
        more=_more(choice, batch),
        block_sum=_block_sum(choice),
    )
    rows = block // choice.integer("lanes")
    rest = f"{heavy}+ceil_div(max(num_rest_rows-{heavy},0),{rows})" if heavy else f"ceil_div(num_rest_rows,{rows})"
    launch = Launch("spmv", f"{rest}+ceil_div(num_rows,{block})", block, body, choice.word("registers"))
    settings: dict[str, ParameterValue] = {"width": width, "rest": "rows", "index": choice.word("index")}
    return program("spmv", choice.element_type, "hyb", settings, launch)


def _write_segmented(choice: Choice) -> str:
    block, items, width, how = (*map(choice.integer, ("block", "items", "width")), choice.word("load"))
    ell = fill(
        """
int row = blockIdx.x * $block + threadIdx.x;
if (row >= num_rows) return;
$base
int col[$width];
$T value[$width];
#pragma unroll
for (int k = 0; k < $width; k++) {
  col[k] = $load_col;
  value[k] = $load_value;
}
$T sum = 0;
#pragma unroll
for (int k = 0; k < $width; k++) sum += value[k] * x[$column];
y[row] = sum;
""",
        block=block,
        base="int base = slice_col_base[row / 32];" if _is_narrow(choice) else "",
        width=width,
        T=scalar(choice.element_type),
        load_col=load(how, "col_indices + k * stride + row"),
        load_value=load(how, "values + k * stride + row"),
        column="base + col[k]" if _is_narrow(choice) else "col[k]",
    )
    rest = segmented_sum(choice, Coordinates("num_rest", "rest_rows", "rest_cols", "int", "rest_values", "+="))
    rest_values = f"const {scalar(choice.element_type)}* rest_values = values + {width} * stride;"
    rest = "\n".join(("if (num_rest == 0) return;", rest_values, rest))
    return program(
        "spmv",
        choice.element_type,
        "hyb",
        {"width": width, "rest": "coo", "index": choice.word("index")},
        Launch("ell", f"ceil_div(num_rows,{block})", block, ell, choice.word("registers")),
        Launch("rest", f"max(ceil_div(num_rest,{block * items}),1)", block, rest, choice.word("registers")),
    )


def _block_fits(choice: Choice) -> bool:
    """The largest blocks are for heavy rows, and leave a thread few registers."""
    return choice.integer("block") < 1024 or (
        choice.integer("heavy") > 0 and choice.integer("width") <= HEAVY_IN_FLIGHT
    )


def hyb_suits(pattern: Pattern) -> bool:
    """Uneven rows that are short for the most part; prospects look closer."""
    return pattern.nnz <= WIDEST * pattern.num_rows and int(pattern.row_lengths.max()) > 1


WIDTH = OneOf(8, tuple(range(1, WIDEST + 1)))
_PARAMETERS: dict[str, ParameterSpec] = {"load": LOAD, "registers": REGISTERS, "index": INDEX}

HYB = Family(
    name="hyb",
    operation="spmv",
    strategy="A thread a row over `width` slots, longer rows whole by other blocks of the same launch, the heaviest a "
    "block each; short rows with some long ones, or some that reach far.",
    parameters={
        "width": WIDTH,
        "lanes": OneOf(8, (2, 4, 8, 16, 32)),
        "heavy": OneOf(0, HEAVY),
        "block": OneOf(128, (64, 128, 256, 512, 1024)),
        **_PARAMETERS,
    },
    suits=hyb_suits,
    write=_write_hyb,
    allows=_block_fits,
)
"""`heavy`: rows of the remainder, from the longest on, that have a block each; others have `lanes` threads."""

HYB_SEGMENTED = Family(
    name="hyb_segmented",
    operation="spmv",
    strategy="A thread a row over the first `width` nonzeros, a second launch adds the others by segmented sums; short "
    "rows with a few of any length.",
    parameters={
        "width": WIDTH,
        "items": OneOf(4, (1, 2, 4, 8)),
        "block": OneOf(128, (64, 128, 256)),
        **_PARAMETERS,
    },
    suits=hyb_suits,
    write=_write_segmented,
)

FAMILIES = (HYB, HYB_SEGMENTED)
