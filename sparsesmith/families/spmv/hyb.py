"""SpMV over HYB: a thread a row over a few slots, others over the remainder; short rows and a few outliers."""

from sparsesmith.families.axes import BLOCK, INDEX, WIDTH, streamed
from sparsesmith.families.estimates.suitability import hyb_suits
from sparsesmith.families.family import Family
from sparsesmith.families.spmv import hyb_prospects as prospects
from sparsesmith.families.spmv.coo import Coordinates, segmented_sum
from sparsesmith.families.spmv.hyb_prospects import HEAVY, HEAVY_IN_FLIGHT, batch_of
from sparsesmith.families.text.program import Choice, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf, ParameterValue

_CUDA = cuda_beside(__name__)

WARP = 32


def _is_narrow(choice: Choice) -> bool:
    return choice.word("index") == "u16"


def _base(choice: Choice) -> str:
    return "base + " if _is_narrow(choice) else ""


def _loads(choice: Choice, batch: int, step: str) -> str:
    """Columns and values of a batch, as many as the thread has left."""
    slot = f"slot + {step} * step" if step == "u" else f"slot + ({step}) * step"
    col = choice.load(f"cols + {slot}")
    if _is_narrow(choice):
        col = f"is_rest ? {choice.load(f'rest_cols + {slot}')} : {choice.load(f'col_indices + {slot}')}"
    return choice.fill(_CUDA["loads"], batch=batch, step=step, col=col, slot=slot)


def _products(choice: Choice, batch: int, step: str) -> str:
    return choice.fill(_CUDA["products"], batch=batch, step=step, base=_base(choice))


def _item(choice: Choice) -> str:
    """Which row of the remainder a thread serves, and with how many others: the heaviest have a block each."""
    block, lanes = choice.integer("block"), choice.integer("lanes")
    rows = block // lanes
    return choice.fill(
        _CUDA["item_with_heavy_rows" if choice.integer("heavy") else "item"],
        past=rows - 1,
        rows=rows,
        shift=lanes.bit_length() - 1,
        block_shift=block.bit_length() - 1,
    )


def _more(choice: Choice, first: int, batch: int) -> str:
    """Further batches of whoever has more slots than one."""
    loads, products = _loads(choice, batch, "start + u"), _products(choice, batch, "start + u")
    return choice.fill(_CUDA["more"], first=first, batch=batch, loads=loads, products=products)


def _write(choice: Choice) -> str:
    block, width, heavy = choice.integer("block"), choice.integer("width"), choice.integer("heavy")
    batch = batch_of(width)
    most = max(batch, HEAVY_IN_FLIGHT) if heavy else batch
    body = choice.fill(
        _CUDA["hyb"],
        partials=f"__shared__ {choice.scalar} partials[{block // WARP}];" if heavy else "",
        item=_item(choice),
        slice_base="int base = is_rest || steps == 0 ? 0 : slice_col_base[row / 32];" if _is_narrow(choice) else "",
        cols="" if _is_narrow(choice) else "const int* cols = is_rest ? rest_cols : col_indices;",
        most=most,
        loads=_loads(choice, batch, "u"),
        products=_products(choice, batch, "u"),
        more=_more(choice, batch, most),
        block_sum=choice.fill(_CUDA["block_sum"], warps=block // WARP) if heavy else "",
    )
    rows = block // choice.integer("lanes")
    rest = f"{heavy}+ceil_div(max(num_rest_rows-{heavy},0),{rows})" if heavy else f"ceil_div(num_rest_rows,{rows})"
    settings: dict[str, ParameterValue] = {"width": width, "rest": "rows", "index": choice.word("index")}
    return program(choice, settings, main_launch(choice, f"{rest}+ceil_div(num_rows,{block})", body))


def _write_segmented(choice: Choice) -> str:
    block, width = choice.integer("block"), choice.integer("width")
    slice_base = "int base = slice_col_base[row / 32];" if _is_narrow(choice) else ""
    ell = choice.fill(_CUDA["segmented"], slice_base=slice_base, base=_base(choice))
    coordinates = Coordinates("num_rest", "rest_rows", "rest_cols", "int", "+=", "rest_values")
    rest = choice.fill(_CUDA["rest"], sums=segmented_sum(choice, coordinates))
    grid = f"max(ceil_div(num_rest,{block * choice.integer('items')}),1)"
    return program(
        choice,
        {"width": width, "rest": "coo", "index": choice.word("index")},
        main_launch(choice, f"ceil_div(num_rows,{block})", ell, kernel="ell"),
        main_launch(choice, grid, rest, kernel="rest"),
    )


def _block_fits(choice: Choice) -> bool:
    """The largest blocks are for heavy rows, and leave a thread few registers."""
    return choice.integer("block") < 1024 or (
        choice.integer("heavy") > 0 and choice.integer("width") <= HEAVY_IN_FLIGHT
    )


HYB = Family(
    name="hyb",
    operation="spmv",
    format="hyb",
    strategy="A thread a row over `width` slots, longer rows whole by other blocks of the same launch, the heaviest a "
    "block each; short rows with some long ones, or some that reach far.",
    parameters={
        "width": WIDTH,
        "lanes": OneOf(8, (2, 4, 8, 16, 32)),
        "heavy": OneOf(0, HEAVY),
        "block": OneOf(128, (64, 128, 256, 512, 1024)),
        **streamed(index=INDEX),
    },
    suits=hyb_suits,
    write=_write,
    allows=_block_fits,
    takes=lambda choice, storage: False,
    prospects=prospects.hyb,
)
"""`heavy`: rows of the remainder, from the longest on, that have a block each; others have `lanes` threads."""

HYB_SEGMENTED = Family(
    name="hyb_segmented",
    operation="spmv",
    format="hyb",
    strategy="A thread a row over the first `width` nonzeros, a second launch adds the others by segmented sums; short "
    "rows with a few of any length.",
    parameters={"width": WIDTH, "items": OneOf(4, (1, 2, 4, 8)), "block": BLOCK, **streamed(index=INDEX)},
    suits=hyb_suits,
    write=_write_segmented,
    takes=lambda choice, storage: False,
    prospects=prospects.hyb_segmented,
)

FAMILIES = (HYB, HYB_SEGMENTED)
