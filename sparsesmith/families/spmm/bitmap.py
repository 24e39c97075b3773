"""SpMM of 16-bit numbers from a bitmap, on tensor cores with sums in float32; 8, 16 or 32 dense columns a warp."""

from collections.abc import Iterator
from math import ceil

from sparsesmith.families.axes import DEPENDENCY, REGISTERS
from sparsesmith.families.estimates.bitmap import bitmap_us, suits
from sparsesmith.families.estimates.cost import GATHER_SHARE, Prospect, Work, combine, number
from sparsesmith.families.family import Family
from sparsesmith.families.spmm.tensor_blocks import NOT_MEASURED
from sparsesmith.families.text import bitmap, tensor
from sparsesmith.families.text.packed import SHORT_TYPES, words, writer
from sparsesmith.families.text.program import MAX_STATIC_SHARED_BYTES, Choice, main_launch, program, vector
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.bitmap import CHUNK_COLS, STRIP_ROWS
from sparsesmith.formats.format import OneOf
from sparsesmith.program.directives import MAX_SHARED_BYTES

_CUDA = cuda_beside(__name__)

_VECTORS = (1, 2, 4)


def _write(choice: Choice) -> str:
    warps, part_cols, width = bitmap.num_warps(choice), choice.integer("part_cols"), choice.integer("vector")
    fixed_bytes = bitmap.mask_bytes(part_cols)
    tiles = choice.num_dense_cols // (tensor.COLUMNS * width)
    products = "\n".join(tensor.products(width, right="right[k]"))
    places: dict[str, object] = {
        "tile": f"blockIdx.y * {tensor.COLUMNS * width} + " if tiles > 1 else "",
        "dense_cols": choice.num_dense_cols,
        "row_words": choice.num_dense_cols // width,
        "Words": "unsigned short" if width == 1 else words(width),
        "Result": "unsigned int" if width == 1 else vector("uint", width),
        "read": choice.vector_read,
    }
    body = choice.fill(
        _CUDA["bitmap"],
        begin=bitmap.begin(choice, fixed_bytes),
        walk=bitmap.walk(choice, products, after=f"read(col + chunk * {CHUNK_COLS} + {CHUNK_COLS});"),
        join=tensor.join(choice, warps, 4 * width, "split") if choice.integer("splits") > 1 else "",
        stores="\n".join(tensor.stores(width)),
        **places,
    )
    grid = f"ceil_div(num_strips,{choice.integer('strips')})" + (f",{tiles}" if tiles > 1 else "")
    shared = f"{warps}*({fixed_bytes}+part_lines*128)"
    launch = main_launch(choice, grid, body, block=32 * warps, shared=shared)
    functions = (tensor.multiplier(choice), writer(choice), bitmap.functions(choice))
    return program(choice, {"part_cols": part_cols}, launch, functions=functions)


def _fits(choice: Choice) -> bool:
    """Whole products of dense columns; pieces that lack nothing and the warps' sums have room."""
    part_cols, width, warps = choice.integer("part_cols"), choice.integer("vector"), bitmap.num_warps(choice)
    joined = 512 * width * warps if choice.integer("splits") > 1 else 0
    pieces = warps * (bitmap.mask_bytes(part_cols) + bitmap.most_bytes(part_cols))
    return (
        choice.num_dense_cols % (tensor.COLUMNS * width) == 0
        and warps <= 16
        and joined <= MAX_STATIC_SHARED_BYTES
        and pieces + joined <= MAX_SHARED_BYTES
    )


def _prospects(work: Work) -> Iterator[Prospect]:
    if work.num_dense_cols % tensor.COLUMNS:
        return
    width = next(width for width in reversed(_VECTORS) if work.num_dense_cols % (tensor.COLUMNS * width) == 0)
    dense_bytes = work.element_bytes * work.statistics.pattern.num_cols * work.num_dense_cols
    gathers = dense_bytes * GATHER_SHARE * ceil(work.rows / STRIP_ROWS)
    for values in combine(vector=(width,), **{name: axis.values for name, axis in bitmap.PIECES.items()}):
        part_cols, strips, splits = (number(values, name) for name in ("part_cols", "strips", "splits"))
        us = bitmap_us(
            work,
            part_cols,
            strips,
            splits,
            instructions=36 + 2 * width,
            reads=4.0 * width,
            moved=gathers,
            across=work.num_dense_cols // (tensor.COLUMNS * width),
        )
        yield Prospect(NOT_MEASURED * us, values)


SPMM_BITMAP = Family(
    name="spmm_bitmap",
    operation="spmm",
    format="bitmap",
    strategy="Warps a strip of 16 rows, values by asynchronous copies, tensor cores on tiles that are put together "
    "from their bits; 16-bit numbers, multiples of 8 dense columns, half to a twentieth of the places filled.",
    parameters={
        "vector": OneOf(1, _VECTORS),
        **bitmap.PIECES,
        "registers": REGISTERS,
        "dependency": DEPENDENCY,
    },
    suits=suits,
    write=_write,
    allows=_fits,
    element_types=SHORT_TYPES,
    prospects=_prospects,
)

FAMILIES = (SPMM_BITMAP,)
