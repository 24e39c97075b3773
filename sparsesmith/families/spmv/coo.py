"""SpMV over equal runs of nonzeros with a segmented sum across each warp."""

from collections.abc import Iterator
from dataclasses import dataclass

from sparsesmith.families.axes import INDEX, streamed
from sparsesmith.families.estimates.cost import (
    Prospect,
    Work,
    combine,
    estimate,
    index_bytes,
    indices,
    loads,
    number,
)
from sparsesmith.families.estimates.suitability import any_pattern
from sparsesmith.families.family import Family
from sparsesmith.families.text.idioms import zero_output
from sparsesmith.families.text.program import Choice, Fact, c_index_type, main_launch, program, vector
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf

_CUDA = cuda_beside(__name__)


@dataclass(frozen=True)
class Coordinates:
    """Where a kernel finds coordinates that are sorted by row, and what it does with a sum."""

    count: str
    rows: str
    cols: str
    c_index: str
    put: str
    """`=` where the output holds nothing yet but zeros, `+=` where it holds a part of each sum."""
    values: str = ""
    """A pointer of the kernel's own; the values of the format if empty."""


def segmented_sum(choice: Choice, source: Coordinates, items: Fact | None = None) -> str:
    """A kernel body that adds all products to y; of what `choice` says it needs block, items and load. `items`: that
    number where the text names it."""
    count = items or choice.integer("items")
    width = min(choice.integer("items"), choice.widest)
    stored = _read(choice, source.values, choice.scalar, width) if source.values else _stored(choice, width)
    return choice.fill(
        _CUDA["segmented_sum"],
        items=count,
        count=source.count,
        I=source.c_index,
        row_array=source.rows,
        col_array=source.cols,
        value=f"{source.values}[j]" if source.values else choice.value_at("j"),
        put=source.put,
        rows=_copies(choice, "row", source.rows, "int", count),
        cols=_copies(choice, "col", source.cols, source.c_index, count),
        values=_assigned(choice, "value", choice.scalar, width, stored, count),
    )


def _copies(choice: Choice, array: str, source: str, c_type: str, items: object) -> str:
    width = min(choice.integer("items"), 4)
    return _assigned(choice, array, c_type, width, _read(choice, source, c_type, width), items)


def _place(choice: Choice, width: int) -> str:
    """Of the k-th of a lane's nonzeros, k counting vectors where there are several."""
    return "start" if choice.integer("items") == width else "start + k"


def _read(choice: Choice, source: str, c_type: str, width: int) -> str:
    address = f"{source} + {_place(choice, width)}"
    return choice.load(address if width == 1 else f"(const {vector(c_type, width)}*)({address})")


def _stored(choice: Choice, width: int) -> str:
    return choice.value_vector(width, _place(choice, width))


def _assigned(choice: Choice, array: str, c_type: str, width: int, read: str, items: object) -> str:
    """The reads to an array, `width` entries at once."""
    if choice.integer("items") == width:
        return f"{array}[0] = {read};" if width == 1 else f"*({vector(c_type, width)}*){array} = {read};"
    return (
        f"#pragma unroll\nfor (int k = 0; k < {items}; k += {width}) *({vector(c_type, width)}*)({array} + k) = {read};"
    )


def _write(choice: Choice) -> str:
    block, width = choice.integer("block"), min(choice.integer("items"), choice.widest)
    items = choice.named("ITEMS", choice.integer("items"))
    span = choice.fact("SPAN", f"{block}*ITEMS", block * choice.integer("items"))
    coordinates = Coordinates("nnz", "row_indices", "col_indices", c_index_type(choice.word("index")), "=")
    return program(
        choice,
        {"index": choice.word("index")},
        zero_output(choice),
        main_launch(choice, f"ceil_div(nnz,{span})", segmented_sum(choice, coordinates, items)),
        functions=(choice.value_function(width),),
        facts=(items, span),
    )


def _prospects(work: Work) -> Iterator[Prospect]:
    for values in combine(
        items=(4, 2, 8, 1) if work.nnz > 100_000 else (2, 4, 1),
        block=(256, 128, 64),
        load=loads(work),
        index=indices(work.statistics.narrow),
    ):
        size = work.nnz * (4.0 + index_bytes(values["index"]) + work.element_bytes)
        items = number(values, "items")
        instructions = work.nnz * (20 + 60 / items) / 32
        yield Prospect(estimate(work, size, instructions, 4, work.nnz / items, 2), dict(values))


COO_SEGMENTED = Family(
    name="coo_segmented",
    operation="spmv",
    format="coo",
    strategy="Each lane takes a short run of nonzeros, a segmented scan joins runs of a row, atomics join warps; "
    "perfect balance for very uneven or mostly empty rows.",
    parameters={"items": OneOf(4, (1, 2, 4, 8)), "block": OneOf(256, (64, 128, 256)), **streamed(index=INDEX)},
    suits=any_pattern,
    write=_write,
    has_facts=True,
    prospects=_prospects,
)

FAMILIES = (COO_SEGMENTED,)
