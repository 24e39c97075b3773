"""SpMM where a block of rows reads each row of B that it needs once, into shared memory: meshes and local orders."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import ceil, inf

import numpy as np

from sparsesmith.families.axes import ANY_BLOCK, streamed
from sparsesmith.families.estimates.cost import (
    DRAM_BYTES_A_US,
    L2_BYTES,
    L2_BYTES_A_US,
    LAUNCH_US,
    LOAD_US,
    NUM_SMS,
    Prospect,
    Values,
    Work,
    combine,
    number,
)
from sparsesmith.families.family import Family
from sparsesmith.families.spmm.dense_tiles import ONE_CHUNK_PARAMETERS, tile_fits, tile_of
from sparsesmith.families.spmm.prospects import placements, tiles_of_groups
from sparsesmith.families.spmm.splits import PLACEMENT, block_number, grid_of, store_vector
from sparsesmith.families.text.program import MAX_STATIC_SHARED_BYTES, Choice, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.building.numbering import ROWS_BY_BREADTH
from sparsesmith.formats.format import OneOf, ParameterSpec, ParameterValue
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.program.directives import MAX_SHARED_BYTES

_CUDA = cuda_beside(__name__)

MIN_NNZ = 30_000
MIN_REORDERED_NNZ = 100_000
WORTH = 0.85
"""Of the time without it, up to which an order is worth a try."""
MOST_DISTINCT = 0.6
"""Distinct columns a nonzero of a block, above which copies hardly save reads."""
CAPACITIES = (256, 512, 1024, 2048, 4096)
SAMPLED_BLOCKS = 48
SHARED_BYTES_A_US = NUM_SMS * 128 * 1700.0
THREADS_OF_SM = 2048


def _static_bytes(choice: Choice) -> int:
    """Values, places and row bounds of a block, in shared memory."""
    return choice.integer("nnz_per_block") * (choice.element_bytes + 2) + 4 * (choice.integer("rows") + 1)


def _write(choice: Choice, *, moves_rows: bool = False) -> str:
    tile, rows = tile_of(choice), choice.integer("rows")
    near = choice.word("placement") == "near"
    row = "row_ids[first_row + row]" if moves_rows else "(first_row + row)"
    body = tile.fill(
        _CUDA["distinct"],
        number=block_number(choice),
        beyond="if (block >= num_blocks) return;" if near else "",
        column=tile.column("blockIdx.z" if near else "blockIdx.y"),
        all_bounds=rows + 1,
        groups=choice.integer("block") // tile.lanes,
        store_row=store_vector(tile, f"c + (size_t){row} * {tile.dense_cols} + column"),
    )
    settings: dict[str, ParameterValue] = {"nnz_per_block": choice.integer("nnz_per_block"), "max_rows": rows}
    if moves_rows:
        settings["rows"] = "breadth"
    shared = f"max_block_cols*{tile.width * choice.element_bytes}"
    launch = main_launch(choice, grid_of("num_blocks", tile), body, shared=shared)
    return program(choice, settings, launch, facts=tile.facts)


def _fits(choice: Choice) -> bool:
    """Even tiles; a block's arrays within what may be declared. Whether its rows of B fit is told by the matrix."""
    tile = tile_of(choice)
    within = choice.integer("lanes") <= choice.integer("block") and _static_bytes(choice) <= MAX_STATIC_SHARED_BYTES
    return tile_fits(choice) and not tile.overhangs and within


def _prospects(work: Work) -> Iterator[Prospect]:
    """Where blocks of rows share columns, as samples of them show."""
    mean = work.statistics.mean
    for capacity in CAPACITIES:
        rows = min((16, 32, 64, 128, 256), key=lambda size: abs(size * mean - capacity))
        if work.statistics.longest > capacity or rows * mean < capacity / 4:
            continue
        distinct, most = _sampled(work.statistics.pattern, capacity, rows)
        if distinct > MOST_DISTINCT:
            continue
        for tile in tiles_of_groups(work):
            width = number(tile, "lanes") * number(tile, "vector")
            shared = 1.3 * most * width * work.element_bytes + capacity * (work.element_bytes + 2)
            if work.num_dense_cols % width or shared > MAX_SHARED_BYTES:
                continue
            for rest in combine(
                block=(256, 128, 512, 64), unroll=(4, 8), load=("ldg",), placement=placements(work)
            ):  # fmt: skip
                values = {**tile, **rest, "nnz_per_block": capacity, "rows": rows}
                yield _prospect(work, values, distinct, shared)


def _reordered_prospects(work: Work) -> Iterator[Prospect]:
    """Those of the rows in breadth, where these share more: nothing is copied for it, as a row of B is read whole."""
    bound_us = WORTH * min((each.estimated_us for each in _prospects(work)), default=inf)
    ordered = replace(work, statistics=work.statistics.numbered(ROWS_BY_BREADTH))
    for prospect in _prospects(ordered):
        if prospect.estimated_us < bound_us:
            yield prospect


def _sampled(pattern: Pattern, capacity: int, rows: int) -> tuple[float, int]:
    """Distinct columns a nonzero, and of one block at most, in runs of rows spread over the matrix."""
    nonzeros, distinct, most = 0, 0, 1
    for first in np.linspace(0, max(pattern.num_rows - rows, 0), SAMPLED_BLOCKS).astype(np.int64):
        begin, end = pattern.row_offsets[first], pattern.row_offsets[min(first + rows, pattern.num_rows)]
        columns = np.unique(pattern.col_indices[begin : min(end, begin + capacity)]).size
        nonzeros += int(min(end - begin, capacity))
        distinct += columns
        most = max(most, columns)
    return distinct / max(nonzeros, 1), most


def _prospect(work: Work, values: Values, distinct: float, shared: float) -> Prospect:
    """Rows of B once a block from the L2, then all products from shared memory."""
    size, block = work.element_bytes, number(values, "block")
    across = work.num_dense_cols / (number(values, "lanes") * number(values, "vector"))
    blocks = ceil(max(work.nnz / number(values, "nnz_per_block"), work.rows / number(values, "rows"))) * across
    resident = max(1, min(THREADS_OF_SM // block, int(MAX_SHARED_BYTES // shared)))
    copied = distinct * work.nnz * work.num_dense_cols * size
    matrix = (work.nnz * (size + 2 + 4 * distinct) + 8.0 * work.rows) * across
    bandwidth = L2_BYTES_A_US if work.vector_bytes < L2_BYTES else DRAM_BYTES_A_US
    moved = (copied + matrix) / L2_BYTES_A_US + work.rows * work.num_dense_cols * size / bandwidth
    multiplied = 1.5 * work.nnz * work.num_dense_cols * size / SHARED_BYTES_A_US
    waves = ceil(blocks / (NUM_SMS * resident))
    chain = waves * LOAD_US * (6 + work.statistics.mean / 8)
    return Prospect(LAUNCH_US + max(chain, moved, multiplied) + 0.3 * min(moved, multiplied), dict(values))


def _suits(pattern: Pattern) -> bool:
    return pattern.nnz >= MIN_NNZ


_PARAMETERS: dict[str, ParameterSpec] = {
    **ONE_CHUNK_PARAMETERS,
    "nnz_per_block": OneOf(1024, CAPACITIES),
    "rows": OneOf(64, (16, 32, 64, 128, 256)),
    "block": ANY_BLOCK,
    "unroll": OneOf(4, (4, 8)),
    "placement": PLACEMENT,
    **streamed(),
}

SPMM_DISTINCT = Family(
    name="spmm_distinct",
    operation="spmm",
    format="csr_distinct",
    strategy="A block of rows copies the distinct rows of B that it needs to shared memory, and its part of the matrix "
    "with them; meshes and other matrices whose neighbouring rows share columns.",
    parameters=_PARAMETERS,
    suits=_suits,
    write=_write,
    has_facts=True,
    allows=_fits,
    prospects=_prospects,
)

SPMM_DISTINCT_REORDERED = Family(
    name="spmm_distinct_reordered",
    operation="spmm",
    format="csr_distinct",
    strategy="As spmm_distinct, the rows in an order in which neighbours share columns, each written where it belongs; "
    "meshes and graphs of neighbours in an order that says nothing.",
    parameters=_PARAMETERS,
    suits=lambda pattern: pattern.nnz >= MIN_REORDERED_NNZ,
    write=partial(_write, moves_rows=True),
    has_facts=True,
    allows=_fits,
    prospects=_reordered_prospects,
    reorders=True,
)

FAMILIES = (SPMM_DISTINCT, SPMM_DISTINCT_REORDERED)
