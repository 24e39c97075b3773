"""SpMV over equal pieces of work, wherever rows begin and end: rows that a piece cuts are completed by a carry."""

from collections.abc import Iterator

from sparsesmith.families.axes import LARGE_BLOCK, streamed
from sparsesmith.families.estimates.cost import (
    BYTES_COUNT_NNZ,
    Prospect,
    Work,
    combine,
    estimate,
    indices,
    loads,
    near,
    number,
)
from sparsesmith.families.estimates.suitability import any_pattern
from sparsesmith.families.family import Family
from sparsesmith.families.spmv.rows_staged import (
    FEW_LANES,
    capacity,
    leader,
    products_fit_shared,
    row_of_thread,
    stage,
    sum_mixed_rows,
)
from sparsesmith.families.spmv.rows_staged_prospects import staging_blocks
from sparsesmith.families.text.program import Choice, Launch, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf, ParameterValue

_CUDA = cuda_beside(__name__)

_BOUNDS = "from = max(row_offsets[min(row, limit)], begin), to = min(row_offsets[min(row + 1, limit)], end);"
"""The segment's part of a thread's row, none past its rows; read before they are needed."""


def _write(choice: Choice) -> str:
    narrow, leads = choice.word("index") != "i32", leader(choice.integer("lanes"))
    store = f"if (row < last{leads}) y[row] = sum;\nif (row == last{leads}) carry[blockIdx.x] = sum;"
    body = choice.fill(
        _CUDA["merge"],
        items=capacity(choice),
        base="int base = segment_col_base[blockIdx.x];" if narrow else "",
        stage=stage(choice, "base + " if narrow else "", choice.wait),
        bounds=_BOUNDS,
        thread_row=row_of_thread(choice),
        rows=sum_mixed_rows(choice, _BOUNDS, "first", "limit", store),
    )
    index = {"index": choice.word("index")} if narrow else {}
    return program(
        choice,
        {"items": capacity(choice), "balance": choice.word("balance"), **index},
        main_launch(choice, "num_segments", body),
        Launch("add_carry", "ceil_div(num_segments,256)", 256, choice.fill(_CUDA["carry"])),
    )


def _prospects(work: Work) -> Iterator[Prospect]:
    for values in combine(
        lanes=near(work.statistics.mean / 6, (1, 2, 4, 8), 2),
        unroll=(4, 8, 2),
        block=staging_blocks(work),
        balance=("merge", "nnz"),
        load=loads(work),
        index=_segment_indices(work),
    ):
        segment = number(values, "block") * number(values, "unroll")
        if not _segments_fit(work, segment, values["index"]):
            continue
        instructions = work.nnz * 30 / 32 + work.rows * 14 / 32
        size = work.csr_bytes(str(values["index"]))
        us = estimate(work, size, instructions, 7, work.nnz / number(values, "unroll"), 2)
        yield Prospect(us, dict(values))


def _segment_indices(work: Work) -> tuple[ParameterValue, ...]:
    """Column widths that segments of some length may allow."""
    near_rows = work.nnz >= BYTES_COUNT_NNZ and work.statistics.rows_reach_within(256)
    sixteen = work.statistics.narrow or work.statistics.rows_reach_within(65536)
    return ("u8", *indices(sixteen)) if near_rows else indices(sixteen)


def _segments_fit(work: Work, segment: int, index: ParameterValue) -> bool:
    """Whether every segment of so many nonzeros spans no more columns than the width allows."""
    if index == "i32" or (index == "u16" and work.statistics.narrow):
        return True
    return work.statistics.reach_of_nonzeros(segment) <= (256 if index == "u8" else 65536)


CSR_MERGE = Family(
    name="csr_merge",
    operation="spmv",
    format="csr_merge",
    strategy="Equal pieces of work by merge path or by nonzeros, staged in shared memory, cut rows completed by a "
    "second launch; strongly skewed rows, giant rows.",
    parameters={
        "lanes": FEW_LANES,
        "unroll": OneOf(4, (2, 4, 8)),
        "block": LARGE_BLOCK,
        "balance": OneOf("merge", ("merge", "nnz")),
        **streamed(index=OneOf("i32", ("i32", "u16", "u8"))),
    },
    suits=any_pattern,
    write=_write,
    allows=products_fit_shared,
    prospects=_prospects,
)

FAMILIES = (CSR_MERGE,)
