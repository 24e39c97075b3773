"""SpMV over slices of dense blocks: lanes own block rows, blocks and x come in vector loads, one index a block."""

from collections.abc import Iterator
from math import ceil

from sparsesmith.families.axes import BLOCK, DEPENDENCY, EXTENT, INDEX, KEEP, LOAD, REGISTERS
from sparsesmith.families.estimates.cost import (
    Prospect,
    Values,
    Work,
    combine,
    estimate,
    index_bytes,
    loads,
    near,
    number,
)
from sparsesmith.families.estimates.residency import keeps, unkept_share
from sparsesmith.families.estimates.suitability import MAX_ELL_PADDING
from sparsesmith.families.family import Family
from sparsesmith.families.text.idioms import warp_sum
from sparsesmith.families.text.program import Choice, main_launch, program, vector
from sparsesmith.families.text.residency import (
    choose_policy,
    load_functions,
    load_kept,
    streams_or_keeps,
    value_kept,
)
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.bsell import vector_of
from sparsesmith.formats.format import OneOf, ParameterValue

_CUDA = cuda_beside(__name__)

MAX_BLOCK_ELEMENTS = 36
MAX_REGISTERS_HELD = 80
UNROLLS = (1, 2, 4, 8)
SMALL_ROWS = 60_000
"""Below this many block rows one lane each cannot fill the device."""


def _block_value(choice: Choice, size: int, slice_: int) -> str:
    """A vector of the block of slot j: planes of neighbouring elements, each coalesced over the lanes."""
    plane = vector_of(size)
    offset = f"(j - own) * {size} + (e / {plane} * {slice_} + own) * {plane}" + (f" + e % {plane}" if plane > 1 else "")
    if plane == 1:
        return load_kept(choice, f"(const {choice.scalar}*)(values + {offset})")
    return value_kept(choice, _width(choice), offset)


def _width(choice: Choice) -> int:
    """Elements of a vector of the block."""
    return min(vector_of(choice.integer("block_rows") * choice.integer("block_cols")), choice.widest)


def _entry(choice: Choice, c_type: str) -> str:
    """A vector of the block's part of x; zero beyond the last column."""
    if choice.word("edge") == "cut":
        return "col[u] + k < num_cols ? x[col[u] + k] : 0"
    return f"{choice.vector_read}((const {c_type}*)(x + col[u] + k))"


def _write(choice: Choice) -> str:
    lanes, narrow = choice.integer("lanes"), choice.word("index") == "u16"
    rows, cols, slice_ = choice.integer("block_rows"), choice.integer("block_cols"), 32 // lanes
    is_cut, natural = choice.word("edge") == "cut", choice.integer("sigma") == 1
    width, x_width = _width(choice), 1 if is_cut else min(vector_of(cols), choice.widest)
    column = choice.load("block_col_indices + j")
    body = choice.fill(
        _CUDA["bsell"],
        slice=slice_,
        slice_base="int base = slice_col_base[slice];" if narrow else "",
        hint=choose_policy(choice),
        size=rows * cols,
        stride=32 * choice.integer("unroll"),
        cut="" if is_cut else f" || num_cols % {cols}",
        col=f"(base + {column})" if narrow else column,
        width=width,
        V=vector(choice.scalar, width),
        block_value=_block_value(choice, rows * cols, slice_),
        x_width=x_width,
        X=vector(choice.scalar, x_width),
        entry=_entry(choice, vector(choice.scalar, x_width)),
        sums=choice.fill(_CUDA["sums"], warp_sum=warp_sum(lanes, "sum[i]", lowest=slice_)) if lanes > 1 else "",
        block_row=f"slice * {slice_} + own" if natural else f"block_row_permutation[slice * {slice_} + own]",
        leads=f"lane < {slice_} && " if lanes > 1 else "",
        held="" if natural else "block_row >= 0 && ",
    )
    launch = main_launch(choice, f"ceil_div(num_slices,{choice.integer('block') // 32})", body)
    settings = {"block_rows": rows, "block_cols": cols, "slice": slice_, "sigma": choice.integer("sigma")}
    functions = (choice.value_function(width), load_functions(choice, width))
    return program(choice, {**settings, "index": choice.word("index")}, launch, functions=functions)


def _goes_together(choice: Choice) -> bool:
    size = choice.integer("block_rows") * choice.integer("block_cols")
    held = size * choice.integer("unroll") * choice.element_bytes // 4
    return 1 < size <= MAX_BLOCK_ELEMENTS and held <= MAX_REGISTERS_HELD and streams_or_keeps(choice)


def _prospects(work: Work) -> Iterator[Prospect]:
    for rows, cols in work.statistics.block_shapes()[:3]:
        block_rows = work.rows / rows
        blocks_a_row = work.statistics.mean / cols / work.statistics.block_fill(rows, cols)
        lanes = (1, 2) if block_rows > SMALL_ROWS else (4, 2, 8, 1)
        sigmas = (1,) if work.statistics.sell_padding(32 * rows, 1) < 1.1 else (1, 256, 4096)
        unrolls = {each: near(blocks_a_row / each, UNROLLS, 2) for each in lanes}
        estimates = _Estimates(work, rows, cols, blocks_a_row)
        for values in combine(
            block_rows=(rows,),
            block_cols=(cols,),
            lanes=lanes,
            sigma=sigmas,
            unroll=UNROLLS,
            edge=("cut" if work.statistics.pattern.num_cols % cols else "whole",),
            block=(64, 128) if block_rows < SMALL_ROWS else (128, 64, 256),
            load=loads(work),
            keep=keeps(work.nnz * work.element_bytes / work.statistics.block_fill(rows, cols)),
            index=("u16", "i32") if _is_narrow(work, rows, cols, max(32, *sigmas)) else ("i32",),
        ):
            if values["unroll"] in unrolls[number(values, "lanes")]:
                estimated_us = estimates.of(values)
                if estimated_us is not None:
                    yield Prospect(estimated_us, values)


def _is_narrow(work: Work, rows: int, cols: int, block_rows: int) -> bool:
    """Whether 16 bits hold the block columns, or their offsets within this many block rows (on the safe side)."""
    return work.statistics.pattern.num_cols <= 65536 * cols or work.statistics.narrow_slices(block_rows * rows, 1)


class _Estimates:
    """Of blocks of one shape, in microseconds: each once, whatever else a choice holds that is not looked at."""

    def __init__(self, work: Work, rows: int, cols: int, blocks_a_row: float) -> None:
        self._work, self._rows, self._cols, self._blocks_a_row = work, rows, cols, blocks_a_row
        self._known: dict[tuple[ParameterValue, ...], float | None] = {}

    def of(self, values: Values) -> float | None:
        """None where it would store too much padding."""
        key = values["lanes"], values["sigma"], values["unroll"], values["index"], values["keep"]
        if key not in self._known:
            self._known[key] = self._estimated(values)
        return self._known[key]

    def _estimated(self, values: Values) -> float | None:
        work, rows, cols, lanes = self._work, self._rows, self._cols, number(values, "lanes")
        padding = work.statistics.sell_padding(32 // lanes * rows, rows * number(values, "sigma"))
        if padding >= MAX_ELL_PADDING:
            return None
        blocks = work.rows / rows * self._blocks_a_row * padding
        size = blocks * (rows * cols * work.element_bytes + index_bytes(values["index"]))
        longest = max(self._blocks_a_row, work.statistics.longest / cols)
        chain = 2 + 2 * ceil(longest / (lanes * number(values, "unroll")))
        instructions = blocks * (6 + 2.2 * rows * cols) / 32 + work.rows * lanes * 6 / 32
        return estimate(work, size * unkept_share(values), instructions, chain, work.rows / rows * lanes)


BSELL = Family(
    name="bsell",
    operation="spmv",
    format="bsell",
    strategy="Dense blocks in slices of block rows: a lane or a few a block row, vector loads of blocks and x that are "
    "coalesced across block rows; finite elements with several unknowns a node.",
    parameters={
        "block_rows": EXTENT,
        "block_cols": EXTENT,
        "lanes": OneOf(1, (1, 2, 4, 8)),
        "sigma": OneOf(1, (1, 256, 4096)),
        "unroll": OneOf(4, UNROLLS),
        "edge": OneOf("whole", ("whole", "cut")),
        "block": BLOCK,
        "load": LOAD,
        "keep": KEEP,
        "registers": REGISTERS,
        "index": INDEX,
        "dependency": DEPENDENCY,
    },
    suits=lambda pattern: pattern.nnz >= 2 * pattern.num_rows,
    write=_write,
    allows=_goes_together,
    takes=lambda choice, storage: choice.integer("keep") == 0 and _width(choice) > 1,
    prospects=_prospects,
)
"""`edge`: whether the last block column is `cut` by the matrix's edge; where none is, x is read in vectors."""

FAMILIES = (BSELL,)
