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
from sparsesmith.families.text.program import Choice, c_index_type, main_launch, program, vector
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


def segmented_sum(choice: Choice, source: Coordinates) -> str:
    """A kernel body that adds all products to y; of what `choice` says it needs block, items and load."""
    items = choice.integer("items")
    width = min(items, choice.widest)
    own = [_read(choice, source.values, choice.scalar, width, k) for k in range(0, items, width)]
    stored = [choice.value_vector(width, f"start + {k}") for k in range(0, items, width)]
    return choice.fill(
        _CUDA["segmented_sum"],
        count=source.count,
        I=source.c_index,
        row_array=source.rows,
        col_array=source.cols,
        value=f"{source.values}[j]" if source.values else choice.value_at("j"),
        put=source.put,
        rows=_copies(choice, "row", source.rows, "int"),
        cols=_copies(choice, "col", source.cols, source.c_index),
        values=_assigned("value", choice.scalar, width, own if source.values else stored),
    )


def _copies(choice: Choice, array: str, source: str, c_type: str) -> str:
    items = choice.integer("items")
    width = min(items, 4)
    return _assigned(array, c_type, width, [_read(choice, source, c_type, width, k) for k in range(0, items, width)])


def _read(choice: Choice, source: str, c_type: str, width: int, k: int) -> str:
    address = f"{source} + start + {k}"
    return choice.load(address if width == 1 else f"(const {vector(c_type, width)}*)({address})")


def _assigned(array: str, c_type: str, width: int, reads: list[str]) -> str:
    """The reads to an array, so many entries at once."""
    if width == 1:
        return "\n".join(f"{array}[{k}] = {read};" for k, read in enumerate(reads))
    wide = vector(c_type, width)
    return "\n".join(f"*({wide}*)({array} + {k * width}) = {read};" for k, read in enumerate(reads))


def _write(choice: Choice) -> str:
    block, items = choice.integer("block"), choice.integer("items")
    coordinates = Coordinates("nnz", "row_indices", "col_indices", c_index_type(choice.word("index")), "=")
    body = segmented_sum(choice, coordinates)
    return program(
        choice,
        {"index": choice.word("index")},
        zero_output(choice),
        main_launch(choice, f"ceil_div(nnz,{block * items})", body),
        functions=(choice.value_function(min(items, choice.widest)),),
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
    prospects=_prospects,
)

FAMILIES = (COO_SEGMENTED,)
