"""SpMV straight from CSR: a thread, a few lanes, a warp or a block for each row."""

from sparsesmith.elements import ALL_TYPES
from sparsesmith.families.axes import LANES, LARGE_BLOCK, streamed
from sparsesmith.families.family import Family
from sparsesmith.families.spmv import csr_prospects as prospects
from sparsesmith.families.text.idioms import block_sum, dot, warp_sum
from sparsesmith.families.text.program import (
    MAX_STATIC_SHARED_BYTES,
    Choice,
    c_index_type,
    main_launch,
    program,
    vector,
)
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.csr import FROM_ROW
from sparsesmith.formats.format import OneOf, ParameterSpec

_CUDA = cuda_beside(__name__)

ROW_INDEX = OneOf("i32", ("i32", "u16", "u8", "u16_row"))
"""`u16`: absolute columns. `u8` and `u16_row`: counted from the row's smallest."""


def _base(choice: Choice) -> str:
    return "base + " if choice.word("index") in FROM_ROW else ""


def _dot(choice: Choice, start: str, step: int, x: str = "x") -> str:
    """Adds a lane's share of the row to `sum`."""
    return dot(choice, start, step, _base(choice), x=x)


def _rows(choice: Choice, section: str, grid: str, *functions: str, **places: object) -> str:
    """A program that begins each row with reads of its bounds."""
    row_base = ", base = row_col_base[row]" if choice.word("index") in FROM_ROW else ""
    body = choice.fill(_CUDA[section], row_base=row_base, base=_base(choice), **places)
    return program(choice, {"index": choice.word("index")}, main_launch(choice, grid, body), functions=functions)


def _write_scalar(choice: Choice) -> str:
    return _rows(choice, "scalar", f"ceil_div(num_rows,{choice.integer('block')})", dot=_dot(choice, "begin", 1))


def _by_lanes(choice: Choice, section: str, x: str = "x") -> str:
    """A few lanes a row; a resident grid strides over the rows, any other has a place for each."""
    lanes = choice.integer("lanes")
    rows = choice.integer("block") // lanes
    grid = f"ceil_div(num_rows,{rows})"
    if "blocks_per_sm" in choice.values:
        grid = f"min({grid},num_sms*{choice.integer('blocks_per_sm')})"
    return _rows(choice, section, grid, rows=rows, dot=_dot(choice, "begin + lane", lanes, x), warp_sum=warp_sum(lanes))


def _write_vector_wide(choice: Choice) -> str:
    lanes, width = choice.integer("lanes"), choice.widest
    return _rows(
        choice,
        "vector_wide",
        f"ceil_div(num_rows,{choice.integer('block') // lanes})",
        choice.value_function(width),
        width=width,
        step=lanes * width,
        I=vector(c_index_type(choice.word("index")), width),
        V=vector(choice.scalar, width),
        products="\n".join(f"sum += value.{field} * x[{_base(choice)}col.{field}];" for field in "xyzw"[:width]),
        warp_sum=warp_sum(lanes),
    )


def _write_block(choice: Choice) -> str:
    block = choice.integer("block")
    return _rows(
        choice,
        "block",
        "num_rows",
        partials="" if block == 32 else f"__shared__ {choice.scalar} partials[{block // 32}];",
        dot=_dot(choice, "begin + threadIdx.x", block),
        block_sum=block_sum(block, "y[row]"),
    )


def _x_fits_shared(choice: Choice) -> bool:
    return choice.integer("capacity") * choice.element_bytes <= MAX_STATIC_SHARED_BYTES


_LANE_PARAMETERS: dict[str, ParameterSpec] = {"lanes": LANES, "unroll": OneOf(2, (1, 2, 4, 8)), "block": LARGE_BLOCK}
_END = streamed(index=ROW_INDEX)

CSR_SCALAR = Family(
    name="csr_scalar",
    operation="spmv",
    format="csr",
    strategy="One thread a row; short rows of one length, and matrices so small that only latency counts.",
    parameters={"unroll": OneOf(4, (1, 2, 4, 8, 16)), "block": OneOf(128, (32, 64, 128, 256)), **_END},
    suits=lambda pattern: True,
    write=_write_scalar,
    element_types=ALL_TYPES,
    prospects=prospects.scalar,
)

CSR_VECTOR = Family(
    name="csr_vector",
    operation="spmv",
    format="csr",
    strategy="A few lanes a row with a shuffle reduction; rows of like length that are longer than a few nonzeros.",
    parameters={**_LANE_PARAMETERS, **_END},
    suits=lambda pattern: pattern.num_rows < 2**26,
    write=lambda choice: _by_lanes(choice, "vector"),
    element_types=ALL_TYPES,
    prospects=prospects.vector,
)

CSR_VECTOR_PERSISTENT = Family(
    name="csr_vector_persistent",
    operation="spmv",
    format="csr",
    strategy="Lanes a row with a grid that stays on the device and strides over the rows; many rows of like length.",
    parameters={**_LANE_PARAMETERS, **streamed(index=ROW_INDEX, blocks_per_sm=OneOf(8, (2, 4, 8, 16)))},
    suits=lambda pattern: 4096 <= pattern.num_rows < 2**26,
    write=lambda choice: _by_lanes(choice, "vector_persistent"),
    element_types=ALL_TYPES,
    prospects=prospects.vector_persistent,
)

CSR_VECTOR_WIDE = Family(
    name="csr_vector_wide",
    operation="spmv",
    format="csr",
    strategy="Lanes a row with aligned 128-bit loads of values and columns; long rows.",
    parameters={"lanes": OneOf(16, (4, 8, 16, 32)), "block": LARGE_BLOCK, **_END},
    suits=lambda pattern: pattern.nnz >= 16 * pattern.num_rows and pattern.num_rows < 2**26,
    write=_write_vector_wide,
    prospects=prospects.vector_wide,
)

CSR_BLOCK = Family(
    name="csr_block",
    operation="spmv",
    format="csr",
    strategy="A whole block a row; few rows with hundreds of nonzeros or more.",
    parameters={"unroll": OneOf(4, (1, 2, 4, 8)), "block": OneOf(128, (32, 64, 128, 256, 512, 1024)), **_END},
    suits=lambda pattern: pattern.nnz >= 48 * pattern.num_rows,
    write=_write_block,
    prospects=prospects.block,
)

CSR_SHARED_X = Family(
    name="csr_shared_x",
    operation="spmv",
    format="csr",
    strategy="x is copied to shared memory by a resident grid; few columns that are gathered many times.",
    parameters={
        "capacity": OneOf(4096, prospects.CAPACITIES),
        "lanes": LANES,
        "unroll": OneOf(2, (1, 2, 4, 8)),
        "block": OneOf(512, (256, 512, 1024)),
        "blocks_per_sm": OneOf(2, (1, 2, 4)),
        **_END,
    },
    suits=lambda pattern: pattern.num_cols <= 12288 and pattern.nnz >= 8 * pattern.num_cols,
    write=lambda choice: _by_lanes(choice, "shared_x", "shared_x"),
    allows=_x_fits_shared,
    prospects=prospects.shared_x,
)

FAMILIES = (CSR_SCALAR, CSR_VECTOR, CSR_VECTOR_PERSISTENT, CSR_VECTOR_WIDE, CSR_BLOCK, CSR_SHARED_X)
