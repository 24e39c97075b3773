"""Sampled products of dense matrices: lanes over the columns, for each nonzero alone or row by row."""

from collections.abc import Iterator

from sparsesmith.families.axes import INDEX, LARGE_BLOCK, UNROLL, streamed
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
from sparsesmith.families.text.idioms import warp_sum
from sparsesmith.families.text.program import Choice, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf
from sparsesmith.formats.values.storage import ValueStorage

_CUDA = cuda_beside(__name__)

LANES = OneOf(8, (1, 2, 4, 8, 16, 32))
MAX_HELD = 32
"""Numbers of its own row that a lane keeps in registers."""


def _held(choice: Choice) -> int:
    return -(-choice.num_dense_cols // choice.integer("lanes"))


def _row_fits(choice: Choice) -> bool:
    return _held(choice) <= MAX_HELD


def _takes_none(_: Choice, __: ValueStorage) -> bool:
    """Values are not read."""
    return False


def _write_entries(choice: Choice) -> str:
    lanes = choice.integer("lanes")
    entries = choice.integer("block") // lanes
    places = {"entries": entries, "columns": choice.num_dense_cols, "warp_sum": warp_sum(lanes)}
    body = choice.fill(_CUDA["entries"], **places)
    settings = {"index": choice.word("index")}
    return program(choice, settings, main_launch(choice, f"ceil_div(nnz,{entries})", body))


def _write_rows(choice: Choice) -> str:
    lanes = choice.integer("lanes")
    rows = choice.integer("block") // lanes
    places = {"rows": rows, "columns": choice.num_dense_cols, "held": _held(choice), "warp_sum": warp_sum(lanes)}
    body = choice.fill(_CUDA["rows"], **places)
    settings = {"index": choice.word("index")}
    return program(choice, settings, main_launch(choice, f"ceil_div(num_rows,{rows})", body))


def _bytes(work: Work, index: str) -> float:
    gathered = work.nnz * work.num_dense_cols * work.element_bytes
    return work.nnz * (work.element_bytes + index_bytes(index)) + gathered


def _entry_prospects(work: Work) -> Iterator[Prospect]:
    for values in combine(
        lanes=near(work.num_dense_cols / 2, (1, 2, 4, 8, 16, 32), 3),
        unroll=(4, 1),
        block=(256, 128),
        load=loads(work),
        index=indices(work.statistics.narrow),
    ):
        lanes = number(values, "lanes")
        steps = -(-work.num_dense_cols // lanes)
        instructions = work.nnz * lanes * (6 * steps + 14) / 32
        size = _bytes(work, str(values["index"])) + work.nnz * (4.0 + work.num_dense_cols * work.element_bytes / 4)
        yield Prospect(estimate(work, size, instructions, 3 + steps, work.nnz * lanes), dict(values))


def _row_prospects(work: Work) -> Iterator[Prospect]:
    mean = work.nnz / work.rows
    for values in combine(
        lanes=near(work.num_dense_cols / 2, (1, 2, 4, 8, 16, 32), 3),
        block=(128, 256),
        load=loads(work),
        index=indices(work.statistics.narrow),
    ):
        lanes = number(values, "lanes")
        steps = -(-work.num_dense_cols // lanes)
        instructions = work.nnz * lanes * (5 * steps + 12) / 32
        size = _bytes(work, str(values["index"])) + 4.0 * work.rows
        yield Prospect(estimate(work, size, instructions, 3 + 2 * mean, work.rows * lanes), dict(values))


ENTRIES = Family(
    name="sampled_entries",
    operation="sddmm",
    format="coo",
    strategy="A few lanes a nonzero multiply a row of u by a row of v; balanced whatever the rows' lengths.",
    parameters={"lanes": LANES, "unroll": UNROLL, "block": LARGE_BLOCK, **streamed(index=INDEX)},
    suits=any_pattern,
    write=_write_entries,
    prospects=_entry_prospects,
    takes=_takes_none,
)

ROWS = Family(
    name="sampled_rows",
    operation="sddmm",
    format="csr",
    strategy="A few lanes a row keep its row of u in registers and walk its nonzeros; rows of similar length.",
    parameters={"lanes": LANES, "block": LARGE_BLOCK, **streamed(index=INDEX)},
    suits=any_pattern,
    write=_write_rows,
    prospects=_row_prospects,
    allows=_row_fits,
    takes=_takes_none,
)

FAMILIES = (ENTRIES, ROWS)
