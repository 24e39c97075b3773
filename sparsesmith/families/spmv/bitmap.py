"""SpMV of 16-bit numbers from a bitmap, on tensor cores: a bit an entry is read where others read 16 of a column.

All eight columns of a product's second operand are x: it costs nothing to compute y eight times.
"""

from collections.abc import Iterator

from sparsesmith.families.axes import DEPENDENCY, REGISTERS
from sparsesmith.families.estimates.bitmap import bitmap_us, suits
from sparsesmith.families.estimates.cost import Prospect, Work, combine, number
from sparsesmith.families.family import Family
from sparsesmith.families.text import bitmap, tensor
from sparsesmith.families.text.packed import SHORT_TYPES
from sparsesmith.families.text.program import Choice, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.bitmap import STRIP_ROWS
from sparsesmith.program.directives import MAX_SHARED_BYTES

_CUDA = cuda_beside(__name__)

INSTRUCTIONS_A_TILE = 30


def _write(choice: Choice) -> str:
    warps, part_cols = bitmap.num_warps(choice), choice.integer("part_cols")
    fixed_bytes = _fixed_bytes(part_cols)
    body = choice.fill(
        _CUDA["bitmap"],
        begin=bitmap.begin(choice, fixed_bytes),
        mask_bytes=bitmap.mask_bytes(part_cols),
        read=choice.vector_read,
        walk=bitmap.walk(choice, _CUDA["products"].strip(), before=_CUDA["before"].strip()),
        warps=warps,
        rows=choice.integer("strips") * STRIP_ROWS,
    )
    grid = f"ceil_div(num_strips,{choice.integer('strips')})"
    shared = f"{warps}*({fixed_bytes}+part_lines*128)"
    launch = main_launch(choice, grid, body, block=32 * warps, shared=shared)
    functions = (tensor.multiplier(choice), bitmap.functions(choice))
    return program(choice, {"part_cols": part_cols}, launch, functions=functions)


def _fixed_bytes(part_cols: int) -> int:
    """Of a warp: bits and x of its columns."""
    return bitmap.mask_bytes(part_cols) + part_cols * bitmap.SHORT_BYTES


def _fits(choice: Choice) -> bool:
    """Whether pieces that lack nothing have room."""
    part_cols, warps = choice.integer("part_cols"), bitmap.num_warps(choice)
    of_a_warp = _fixed_bytes(part_cols) + bitmap.most_bytes(part_cols) + STRIP_ROWS * 4
    return warps <= 16 and warps * of_a_warp <= MAX_SHARED_BYTES


def _prospects(work: Work) -> Iterator[Prospect]:
    for values in combine(**{name: axis.values for name, axis in bitmap.PIECES.items()}):
        part_cols, strips, splits = (number(values, name) for name in ("part_cols", "strips", "splits"))
        vectors = work.element_bytes * work.statistics.pattern.num_cols * work.rows / STRIP_ROWS
        us = bitmap_us(
            work, part_cols, strips, splits, instructions=INSTRUCTIONS_A_TILE, reads=1.1, moved=vectors, across=1
        )
        yield Prospect(us, values)


BITMAP_MMA = Family(
    name="bitmap_mma",
    operation="spmv",
    format="bitmap",
    strategy="Warps a strip of 16 rows, values by asynchronous copies, tensor cores on tiles that are put together "
    "from their bits; 16-bit numbers, half to a twentieth of the places filled, such as pruned layers.",
    parameters={
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

FAMILIES = (BITMAP_MMA,)
