"""y = A^T x by atomics: each product is added where its column stands; nothing but A itself is read."""

from collections.abc import Iterator

from sparsesmith.families.axes import INDEX, LANES, LARGE_BLOCK, streamed
from sparsesmith.families.estimates.cost import (
    Prospect,
    Work,
    combine,
    estimate,
    index_bytes,
    indices,
    loads,
    near,
    number,
)
from sparsesmith.families.estimates.suitability import any_pattern
from sparsesmith.families.family import Family
from sparsesmith.families.text.program import Choice, Launch, c_index_type, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf

_CUDA = cuda_beside(__name__)

ATOMIC_BYTES = 8.0
"""What an addition to y costs of the bandwidth, beyond the element: it is done in the L2."""


def _zero(choice: Choice) -> Launch:
    return Launch("zero", "ceil_div(num_cols,256)", 256, choice.fill(_CUDA["zero"]))


def _write_rows(choice: Choice) -> str:
    rows = choice.integer("block") // choice.integer("lanes")
    body = choice.fill(_CUDA["rows"], rows=rows)
    main = main_launch(choice, f"ceil_div(num_rows,{rows})", body)
    return program(choice, {"index": choice.word("index")}, _zero(choice), main)


def _write_entries(choice: Choice) -> str:
    per_block = choice.integer("block") * choice.integer("items")
    body = choice.fill(_CUDA["entries"], I=c_index_type(choice.word("index")), per_block=per_block)
    main = main_launch(choice, f"ceil_div(nnz,{per_block})", body)
    return program(choice, {"index": choice.word("index")}, _zero(choice), main)


def _bytes(work: Work, index: str, rows: float) -> float:
    return work.nnz * (work.element_bytes + index_bytes(index) + ATOMIC_BYTES) + rows


def _row_prospects(work: Work) -> Iterator[Prospect]:
    mean = work.nnz / work.rows
    for values in combine(
        lanes=near(mean, (2, 4, 8, 16, 32), 3),
        block=(256, 128),
        load=loads(work),
        index=indices(work.statistics.narrow),
    ):
        lanes = number(values, "lanes")
        chain = 3 + mean / lanes
        instructions = work.nnz * 8 / 32 + work.rows * lanes * 10 / 32
        size = _bytes(work, str(values["index"]), 4.0 * work.rows)
        yield Prospect(estimate(work, size, instructions, chain, work.rows * lanes, 2), dict(values))


def _entry_prospects(work: Work) -> Iterator[Prospect]:
    for values in combine(items=(4, 2, 1), block=(256, 128), load=loads(work), index=indices(work.statistics.narrow)):
        items = number(values, "items")
        size = _bytes(work, str(values["index"]), 4.0 * work.nnz)
        yield Prospect(estimate(work, size, work.nnz * 12 / 32, 4, work.nnz / items, 2), dict(values))


ROWS = Family(
    name="transposed_rows",
    operation="spmv_t",
    format="csr",
    strategy="A few lanes a row read x once and add their products to y by atomics, straight from CSR; matrices whose "
    "columns are hit by rows far from each other.",
    parameters={"lanes": LANES, "block": LARGE_BLOCK, **streamed(index=INDEX)},
    suits=any_pattern,
    write=_write_rows,
    prospects=_row_prospects,
)

ENTRIES = Family(
    name="transposed_entries",
    operation="spmv_t",
    format="coo",
    strategy="Each lane takes a few nonzeros that lie a block apart and adds their products to y by atomics; perfect "
    "balance for rows of very uneven length.",
    parameters={"items": OneOf(4, (1, 2, 4, 8)), "block": LARGE_BLOCK, **streamed(index=INDEX)},
    suits=any_pattern,
    write=_write_entries,
    prospects=_entry_prospects,
)

FAMILIES = (ROWS, ENTRIES)
