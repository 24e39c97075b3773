"""SpMV for fixed values: equal rows share one row of a table, equal values need none."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from sparsesmith.families.axes import ANY_BLOCK, INDEX, MAX_LITERAL_DIAGONALS, OFFSETS, SIGMA, UNROLL, streamed
from sparsesmith.families.estimates.suitability import dia_suits
from sparsesmith.families.fixed.family import FixedFamily, FixedWork, Parameters
from sparsesmith.families.text.idioms import diagonals_in, outside, part
from sparsesmith.families.text.program import Choice, Fact, Launch, main_launch, program, vector
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.families.text.values import Compression, row_dictionary
from sparsesmith.formats.format import OneOf, ParameterValue, numbers
from sparsesmith.formats.values.storage import Constant
from sparsesmith.matrix.pattern import Pattern

_CUDA = cuda_beside(__name__)

MAX_WIDTH = 32
MAX_REGISTER_BYTES = 512
"""Of the entries of x that a thread holds."""
MAX_CONSTANT_PADDING = 2.0
MIN_WIDE_ROWS = 2048
CODE = OneOf("u8", ("u8", "u16"))
WIDTH = OneOf(5, tuple(range(1, MAX_WIDTH + 1)))


def _rows_suit_ell(pattern: Pattern) -> bool:
    longest = int(pattern.row_lengths.max())
    return longest <= MAX_WIDTH and longest * pattern.num_rows <= 2 * pattern.nnz + 4096


def _fits_registers(choice: Choice) -> bool:
    count = len(numbers(choice.word("offsets")))
    return count * choice.integer("rows") * choice.element_bytes <= MAX_REGISTER_BYTES


def has_no_empty_row(pattern: Pattern) -> bool:
    return bool(pattern.row_lengths.all())


def _by_code(choice: Choice, launch: Launch, *functions: str, facts: tuple[Fact, ...] = (), **require: Fact) -> str:
    """A program that reads `row_codes` and `row_values`; `require`: sizes that are written into it."""
    stored = replace(choice, compression=row_dictionary(choice.word("code")))
    return program(stored, {}, launch, functions=functions, require=require, facts=facts)


def _write_dia_rows(choice: Choice) -> str:
    block, rows, (offsets, count) = choice.integer("block"), choice.integer("rows"), diagonals_in(choice)
    body = choice.fill(
        _CUDA["dia_rows"],
        offsets=offsets,
        count=count,
        tile=block * rows,
        renew=choice.fill(_CUDA["renew"], count=count) if rows > 1 else "",
    )
    launch = main_launch(choice, f"ceil_div(num_rows,{block * rows})", body)
    return _by_code(choice, launch, facts=(offsets, count), num_diagonals=count)


def _write_dia_rows_wide(choice: Choice) -> str:
    rows, (offsets, count), (below, above) = choice.integer("rows"), diagonals_in(choice), outside(choice)
    body = choice.fill(
        _CUDA["dia_rows_wide"],
        offsets=offsets,
        count=count,
        shift=rows.bit_length() - 1,
        mask=rows - 1,
        below=below,
        above=above,
        V=vector(choice.scalar, rows),
        C=("uchar" if choice.word("code") == "u8" else "ushort") + str(rows),
        read=choice.vector_read,
        codes=", ".join(f"codes.{field}" for field in "xyzw"[:rows]),
        same=" && ".join(f"code[0] == code[{i}]" for i in range(1, rows)),
        sums=", ".join(f"sum[{i}]" for i in range(rows)),
    )
    launch = main_launch(choice, f"ceil_div(num_rows,{choice.integer('block') * rows})", body)
    facts = (offsets, count, below, above)
    return _by_code(choice, launch, part(choice, rows), facts=facts, num_diagonals=count)


def _write_row_by_row(choice: Choice, section: str) -> str:
    grid = f"ceil_div(num_rows,{choice.integer('block')})"
    if choice.format != "ell":
        return _by_code(choice, main_launch(choice, grid, choice.fill(_CUDA[section])))
    width = choice.fact("WIDTH", "row_length_max", choice.integer("width"))
    launch = main_launch(choice, grid, choice.fill(_CUDA[section], width=width))
    return _by_code(choice, launch, facts=(width,), width=width)


def _write_sell_constant(choice: Choice) -> str:
    slice_, narrow, natural = choice.integer("slice"), choice.word("index") == "u16", choice.integer("sigma") == 1
    body = choice.fill(
        _CUDA["sell_constant"],
        slice_base="int base = slice_col_base[slice];" if narrow else "",
        row="slot" if natural else "row_permutation[slot]",
        stride=slice_ * choice.integer("unroll"),
        base="base + " if narrow else "",
        is_row="row < num_rows" if natural else "row >= 0",
    )
    settings = {name: choice.values[name] for name in ("slice", "sigma", "index")}
    launch = main_launch(choice, f"ceil_div(num_slices*{slice_},{choice.integer('block')})", body)
    return program(replace(choice, compression=Compression(Constant())), settings, launch)


def _listed(**axes: tuple[ParameterValue, ...]) -> Iterator[Parameters]:
    """Every combination, the last axis first."""
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _dia_rows(work: FixedWork) -> Iterator[Parameters]:
    if work.code_by_diagonal is None or work.statistics.diagonals > MAX_LITERAL_DIAGONALS:
        return
    rows = (1, 2) if work.pattern.num_rows < 100_000 else (2, 1, 4)
    for each in _listed(rows=rows, block=work.blocks, load=("ldg", "ldcs"), registers=("free", "few")):
        yield {"offsets": work.statistics.listed_diagonals, **each, "code": work.code_by_diagonal}


def _dia_rows_wide(work: FixedWork) -> Iterator[Parameters]:
    if work.code_by_diagonal is None or work.statistics.diagonals > MAX_LITERAL_DIAGONALS:
        return
    for block, rows, registers in product((256, 128, 512), (4, 2), ("free", "few")):
        own: Parameters = {"offsets": work.statistics.listed_diagonals, "rows": rows, "block": block}
        yield {**own, "load": "ldg", "registers": registers, "code": work.code_by_diagonal}


def _dia_rows_long(work: FixedWork) -> Iterator[Parameters]:
    if work.code_by_diagonal is None:
        return
    for each in _listed(unroll=(4, 8), block=work.blocks):
        yield {**each, "load": "ldg", "registers": "free", "code": work.code_by_diagonal}


def _ell_rows(work: FixedWork) -> Iterator[Parameters]:
    if work.code_by_place is None:
        return
    for each in _listed(block=work.blocks, load=("ldcs", "ldg"), registers=("free", "few")):
        yield {"width": work.statistics.longest, **each, "code": work.code_by_place}


def _sell_constant(work: FixedWork) -> Iterator[Parameters]:
    if not work.is_constant:
        return
    sigmas = [sigma for sigma in (1, 256, 4096) if work.statistics.sell_padding(32, sigma) < MAX_CONSTANT_PADDING]
    for registers, load, block, sigma, unroll in product(
        ("free", "few"), ("ldcs", "ldg"), work.blocks, sigmas[:2], (4, 8, 2)
    ):
        index = "u16" if work.statistics.narrow_slices(32, sigma) else "i32"
        own: Parameters = {"slice": 32, "sigma": sigma, "unroll": unroll, "block": block}
        yield {**own, "load": load, "registers": registers, "index": index}


DIA_ROWS = FixedFamily(
    name="dia_rows",
    operation="spmv",
    format="dia",
    strategy="Diagonals, and a code for each row into a table of the distinct rows: stencils read x and a byte a row.",
    parameters={"offsets": OFFSETS, "rows": OneOf(1, (1, 2, 4)), "block": ANY_BLOCK, **streamed(code=CODE)},
    suits=dia_suits,
    write=_write_dia_rows,
    has_facts=True,
    allows=_fits_registers,
    choices=_dia_rows,
)

DIA_ROWS_WIDE = FixedFamily(
    name="dia_rows_wide",
    operation="spmv",
    format="dia",
    strategy="As dia_rows with two or four rows a thread: vector loads of x, which neighbouring diagonals share.",
    parameters={
        "offsets": OFFSETS,
        "rows": OneOf(4, (2, 4)),
        "block": OneOf(128, (64, 128, 256, 512)),
        **streamed(code=CODE),
    },
    suits=lambda pattern: pattern.num_rows >= MIN_WIDE_ROWS and dia_suits(pattern),
    write=_write_dia_rows_wide,
    has_facts=True,
    allows=lambda choice: _fits_registers(choice) and choice.integer("rows") <= choice.widest,
    choices=_dia_rows_wide,
)

DIA_ROWS_LONG = FixedFamily(
    name="dia_rows_long",
    operation="spmv",
    format="dia",
    strategy="As dia_rows, diagonal by diagonal: for more diagonals than fit into registers.",
    parameters={"unroll": OneOf(4, (2, 4, 8, 16)), "block": ANY_BLOCK, **streamed(code=CODE)},
    suits=dia_suits,
    write=lambda choice: _write_row_by_row(choice, "dia_rows_long"),
    choices=_dia_rows_long,
)

ELL_ROWS = FixedFamily(
    name="ell_rows",
    operation="spmv",
    format="ell",
    strategy="ELL columns, and for each row a code into a table of the distinct rows: meshes whose rows repeat.",
    parameters={"width": WIDTH, "block": ANY_BLOCK, **streamed(code=CODE)},
    suits=_rows_suit_ell,
    write=lambda choice: _write_row_by_row(choice, "ell_rows"),
    has_facts=True,
    choices=_ell_rows,
)

SELL_CONSTANT = FixedFamily(
    name="sell_constant",
    operation="spmv",
    format="sell",
    strategy="Sliced ELL without values, padding told by its repeated column: unweighted graphs and meshes.",
    parameters={
        "slice": OneOf(32, (32, 64)),
        "sigma": SIGMA,
        "unroll": UNROLL,
        "block": ANY_BLOCK,
        **streamed(index=INDEX),
    },
    suits=has_no_empty_row,
    write=_write_sell_constant,
    choices=_sell_constant,
)

FIXED_FAMILIES: Mapping[str, FixedFamily] = {
    family.name: family for family in (DIA_ROWS, DIA_ROWS_WIDE, DIA_ROWS_LONG, ELL_ROWS, SELL_CONSTANT)
}
"""By name; every one needs fixed values."""
