"""SpMV over blocks of consecutive rows: products staged in shared memory, then summed row by row."""

from sparsesmith.families.axes import INDEX, LARGE_BLOCK, streamed
from sparsesmith.families.estimates.suitability import any_pattern
from sparsesmith.families.family import Family
from sparsesmith.families.spmv import rows_staged_prospects as prospects
from sparsesmith.families.text.idioms import batch, block_sum, dot, warp_sum
from sparsesmith.families.text.program import MAX_STATIC_SHARED_BYTES, Choice, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf, ParameterSpec, ParameterValue

_CUDA = cuda_beside(__name__)

MAX_ROWS = 4096
FEW_LANES = OneOf(1, (1, 2, 4, 8))

BOUNDS = "from = row_offsets[min(row, last)], to = row_offsets[min(row + 1, last)];"
"""Nonzeros of a thread's row, none past the block's rows; read before they are needed."""


def capacity(choice: Choice) -> int:
    """Products that a block stages."""
    return choice.integer("block") * choice.integer("unroll")


def stage(choice: Choice, base: str = "", wait: str = "") -> str:
    """Stores the products of nonzeros begin..end to `products`; `wait`: where nothing before has touched a vector."""
    loaded = batch(choice, choice.integer("block"), choice.integer("unroll"))
    return choice.fill(_CUDA["stage"], batch=loaded, base=base, wait=wait)


def sum_mixed_rows(choice: Choice, bounds: str, first: str, last: str, store: str) -> str:
    """Sums `products` for rows first..last: a few lanes a row, and the whole warp where a row is long."""
    lanes = choice.integer("lanes")
    return choice.fill(
        _CUDA["sum_mixed_rows"],
        first=first,
        last=last,
        rows=choice.integer("block") // lanes,
        longest=32 * lanes,
        own_lane="" if lanes == 1 else f" + lane % {lanes}",
        leader=leader(lanes),
        bounds=bounds,
        group_sum=warp_sum(lanes),
        warp_sum=warp_sum(32, "part"),
        store=store,
    )


def row_of_thread(choice: Choice) -> str:
    """First row of a thread within the block."""
    lanes = choice.integer("lanes")
    return "threadIdx.x" if lanes == 1 else f"threadIdx.x / {lanes}"


def leader(lanes: int) -> str:
    """Ends a test so that one lane of each row passes."""
    return "" if lanes == 1 else f" && lane % {lanes} == 0"


def products_fit_shared(choice: Choice) -> bool:
    """Whether a block's products fit static shared memory."""
    return capacity(choice) * choice.element_bytes <= MAX_STATIC_SHARED_BYTES


def _uniform_rows(choice: Choice) -> str:
    lanes = choice.integer("lanes")
    return choice.fill(
        _CUDA["uniform_rows"],
        rows=choice.integer("block") // lanes,
        lane="" if lanes == 1 else f" + threadIdx.x % {lanes}",
        warp_sum=warp_sum(lanes),
        leads="" if lanes == 1 else f"threadIdx.x % {lanes} == 0 && ",
        bounds=BOUNDS,
    )


def _mixed_rows(choice: Choice) -> str:
    store = f"if (row < last{leader(choice.integer('lanes'))}) y[row] = sum;"
    return sum_mixed_rows(choice, BOUNDS, "first", "last", store)


def _write(choice: Choice, section: str, rows: str) -> str:
    narrow, block = choice.word("index") == "u16", choice.integer("block")
    base = "base + " if narrow else ""
    body = choice.fill(
        _CUDA[section],
        head=choice.fill(
            _CUDA["head"],
            thread_row=row_of_thread(choice),
            bounds=BOUNDS,
            capacity=capacity(choice),
            base="int base = block_col_base[blockIdx.x];" if narrow else "",
        ),
        capacity=capacity(choice),
        long_row=choice.fill(
            _CUDA["long_row"],
            dot=dot(choice, "begin + threadIdx.x", block, base),
            block_sum=block_sum(block, "y[first]", "products"),
        ),
        warps=block // 32,
        row_dot=dot(choice, "begin + lane", 32, base, min(choice.integer("unroll"), 4)),
        warp_sum=warp_sum(32),
        stage=stage(choice, base),
        rows=rows,
    )
    max_rows = min(capacity(choice), MAX_ROWS)
    settings: dict[str, ParameterValue] = {
        "nnz_per_block": capacity(choice),
        "max_rows": max_rows,
        "index": choice.word("index"),
    }
    return program(choice, settings, main_launch(choice, "num_blocks", body))


_STAGING: dict[str, ParameterSpec] = {
    "unroll": OneOf(4, (1, 2, 4, 8, 16)),
    "block": LARGE_BLOCK,
    **streamed(index=INDEX),
}

CSR_STREAM = Family(
    name="csr_stream",
    operation="spmv",
    format="csr_rowblocks",
    strategy="A block takes whole rows worth block x unroll nonzeros, stages products in shared memory, sums each row "
    "by a fixed number of lanes; short to medium rows at full bandwidth.",
    parameters={"lanes": OneOf(4, (1, 2, 4, 8, 16, 32)), **_STAGING},
    suits=any_pattern,
    write=lambda choice: _write(choice, "stream", _uniform_rows(choice)),
    allows=products_fit_shared,
    prospects=prospects.stream,
)

CSR_ADAPTIVE = Family(
    name="csr_adaptive",
    operation="spmv",
    format="csr_rowblocks",
    strategy="As csr_stream, but a few lanes sum a short row, a warp a long one, a block a row alone; mixed lengths.",
    parameters={"lanes": FEW_LANES, **_STAGING},
    suits=any_pattern,
    write=lambda choice: _write(choice, "adaptive", _mixed_rows(choice)),
    allows=products_fit_shared,
    prospects=prospects.adaptive,
)

CSR_BINNED = Family(
    name="csr_binned",
    operation="spmv",
    format="csr_rowblocks",
    strategy="Each block chooses by its rows: shared staging, a warp a row, or the block for one row; row lengths that "
    "change along the matrix.",
    parameters={"warp_row_nnz": OneOf(64, (32, 64, 128)), "lanes": FEW_LANES, **_STAGING},
    suits=lambda pattern: pattern.nnz >= 4 * pattern.num_rows,
    write=lambda choice: _write(choice, "binned", _mixed_rows(choice)),
    allows=products_fit_shared,
    prospects=prospects.binned,
)

FAMILIES = (CSR_STREAM, CSR_ADAPTIVE, CSR_BINNED)
