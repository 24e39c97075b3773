"""SpMV over diagonals whose offsets stand in the program: nothing has to be read before x and the values can be."""

from collections.abc import Iterator

from sparsesmith.families.axes import ANY_BLOCK, DEPENDENCY, KEEP, LOAD, MAX_LITERAL_DIAGONALS, OFFSETS, REGISTERS
from sparsesmith.families.estimates.cost import Prospect, Values, Work, combine, estimate, loads, number
from sparsesmith.families.estimates.residency import keeps, unkept_share
from sparsesmith.families.estimates.suitability import dia_suits
from sparsesmith.families.family import Family
from sparsesmith.families.text.idioms import diagonals_in, outside, part
from sparsesmith.families.text.program import Choice, main_launch, program, vector
from sparsesmith.families.text.residency import choose_policy, load_functions, load_kept, streams_or_keeps, value_kept
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf, numbers

_CUDA = cuda_beside(__name__)


def _write(choice: Choice) -> str:
    block, slice_ = choice.integer("block"), choice.integer("slice")
    offsets, count = diagonals_in(choice)
    slot = f"(row / {slice_} * {count} + d) * {slice_} + row % {slice_}" if slice_ else "d * num_rows + row"
    body = choice.fill(
        _CUDA["literal"],
        offsets=offsets,
        count=count,
        hint=choose_policy(choice),
        value=value_kept(choice, 1, slot),
    )
    launch = main_launch(choice, f"ceil_div(num_rows,{block})", body)
    functions, facts = (load_functions(choice, 1),), (offsets, count)
    return program(
        choice, {"slice": slice_}, launch, functions=functions, require={"num_diagonals": count}, facts=facts
    )


def _write_wide(choice: Choice) -> str:
    rows, (offsets, count), (below, above) = choice.integer("rows"), diagonals_in(choice), outside(choice)
    slice_ = 32 * rows
    slots = choice.fact("SLOTS", f"{slice_}*COUNT", slice_ * len(numbers(choice.word("offsets"))))
    body = choice.fill(
        _CUDA["literal_wide"],
        offsets=offsets,
        count=count,
        shift=rows.bit_length() - 1,
        mask=rows - 1,
        slice=slice_,
        slice_slots=slots,
        below=below,
        above=above,
        V=vector(choice.scalar, rows),
        hint=choose_policy(choice),
        value=load_kept(choice, "own + d * 32"),
        read=choice.vector_read,
        sums=", ".join(f"sum[{i}]" for i in range(rows)),
    )
    launch = main_launch(choice, f"ceil_div(num_rows,{choice.integer('block') * rows})", body)
    functions, facts = (part(choice, rows), load_functions(choice, rows)), (offsets, count, slots, below, above)
    return program(
        choice, {"slice": slice_}, launch, functions=functions, require={"num_diagonals": count}, facts=facts
    )


def _size(work: Work) -> float:
    """Bytes of the stored values."""
    return float(work.statistics.diagonals * work.rows * work.element_bytes)


def _prospect(work: Work, values: Values, rows: int) -> Prospect:
    """All loads at once: a chain of one, and a little more for each batch that the registers cannot hold."""
    slots = float(work.statistics.diagonals * work.rows)
    chain = 1 + work.statistics.diagonals / 24
    return Prospect(
        estimate(work, _size(work) * unkept_share(values), slots * 6 / 32, chain, work.rows / rows),
        {"offsets": work.statistics.listed_diagonals, **values},
    )


def _prospects(work: Work) -> Iterator[Prospect]:
    if work.statistics.diagonals > MAX_LITERAL_DIAGONALS:
        return
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256, 512)
    slices = (0,) if work.rows < 30_000 else (0, 128)
    for values in combine(slice=slices, block=blocks, load=loads(work), keep=keeps(_size(work))):
        yield _prospect(work, values, 1)


def _prospects_wide(work: Work) -> Iterator[Prospect]:
    if work.statistics.diagonals > MAX_LITERAL_DIAGONALS:
        return
    for values in combine(rows=(4, 2), block=(128, 64, 256), load=loads(work), keep=keeps(_size(work))):
        yield _prospect(work, values, number(values, "rows"))


DIA_LITERAL = Family(
    name="dia_literal",
    operation="spmv",
    format="dia",
    strategy="Diagonals with their offsets written into the kernel: x and the values are loaded at once; stencils and "
    "bands, latency bound or large.",
    parameters={
        "offsets": OFFSETS,
        "slice": OneOf(0, (0, 32, 128)),
        "block": ANY_BLOCK,
        "load": LOAD,
        "keep": KEEP,
        "registers": REGISTERS,
        "dependency": DEPENDENCY,
    },
    suits=dia_suits,
    write=_write,
    has_facts=True,
    allows=streams_or_keeps,
    takes=lambda choice, storage: choice.integer("keep") == 0,
    prospects=_prospects,
)

DIA_LITERAL_WIDE = Family(
    name="dia_literal_wide",
    operation="spmv",
    format="dia",
    strategy="Each thread owns two or four rows: vector loads of values and of x, which neighbouring diagonals share; "
    "large stencils and bands.",
    parameters={
        "offsets": OFFSETS,
        "rows": OneOf(4, (2, 4)),
        "block": OneOf(128, (64, 128, 256, 512)),
        "load": LOAD,
        "keep": KEEP,
        "registers": REGISTERS,
        "dependency": DEPENDENCY,
    },
    suits=lambda pattern: pattern.num_rows >= 2048 and dia_suits(pattern),
    write=_write_wide,
    has_facts=True,
    allows=lambda choice: streams_or_keeps(choice) and choice.integer("rows") <= choice.widest,
    takes=lambda choice, storage: False,
    prospects=_prospects_wide,
)

FAMILIES = (DIA_LITERAL, DIA_LITERAL_WIDE)
