"""SpMV over equal pieces of work, wherever rows begin and end: rows that a piece cuts are completed by a carry."""

from sparsesmith.families.csr import LOAD, REGISTERS
from sparsesmith.families.family import Choice, Family
from sparsesmith.families.row_blocks import (
    FEW_LANES,
    leader,
    products_fit_shared,
    row_of_thread,
    stage,
    sum_mixed_rows,
)
from sparsesmith.families.source import Launch, fill, program, scalar
from sparsesmith.formats.format import OneOf

CARRY = """
int segment = blockIdx.x * 256 + threadIdx.x;
if (segment >= num_segments) return;
int row = segment_rows[segment + 1];
if (row < num_rows) atomicAdd(y + row, carry[segment]);
"""


BOUNDS = """
from = max(row_offsets[min(row, limit)], begin), to = min(row_offsets[min(row + 1, limit)], end);
""".strip()
"""The segment's part of a thread's row, none past its rows; read before they are needed."""


def _write_merge(choice: Choice) -> str:
    block, unroll = choice.integer("block"), choice.integer("unroll")
    lanes, items = choice.integer("lanes"), block * unroll
    narrow = choice.word("index") != "i32"
    index = {"index": choice.word("index")} if narrow else {}
    store = f"if (row < last{leader(lanes)}) y[row] = sum;\nif (row == last{leader(lanes)}) carry[blockIdx.x] = sum;"
    body = fill(
        """
__shared__ $T products[$items];
int first = segment_rows[blockIdx.x], last = segment_rows[blockIdx.x + 1];
int begin = segment_offsets[blockIdx.x], end = segment_offsets[blockIdx.x + 1];
int limit = min(last + 1, num_rows), row = first + $thread_row;
int $bounds
$base
$stage
$rows
""",
        T=scalar(choice.element_type),
        items=items,
        base="int base = segment_col_base[blockIdx.x];" if narrow else "",
        stage=stage(block, unroll, choice.word("load"), choice, "base + " if narrow else ""),
        bounds=BOUNDS,
        thread_row=row_of_thread(lanes),
        rows=sum_mixed_rows(choice, BOUNDS, "first", "limit", store),
    )
    return program(
        "spmv",
        choice.element_type,
        "csr_merge",
        {"items": items, "balance": choice.word("balance"), **index},
        Launch("spmv", "num_segments", block, body, choice.word("registers")),
        Launch("add_carry", "ceil_div(num_segments,256)", 256, CARRY.strip()),
    )


CSR_MERGE = Family(
    name="csr_merge",
    operation="spmv",
    strategy="Equal pieces of work by merge path or by nonzeros, staged in shared memory, cut rows completed by a "
    "second launch; strongly skewed rows, giant rows.",
    parameters={
        "lanes": FEW_LANES,
        "unroll": OneOf(4, (2, 4, 8)),
        "block": OneOf(256, (64, 128, 256, 512)),
        "balance": OneOf("merge", ("merge", "nnz")),
        "load": LOAD,
        "registers": REGISTERS,
        "index": OneOf("i32", ("i32", "u16", "u8")),
    },
    suits=lambda pattern: True,
    write=_write_merge,
    allows=products_fit_shared,
)

FAMILIES = (CSR_MERGE,)
