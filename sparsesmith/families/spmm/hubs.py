"""SpMM with the popular rows of B in shared memory: a resident grid whose warps go from tile to tile."""

from collections.abc import Iterator
from math import ceil

import numpy as np

from sparsesmith.families.axes import DEPENDENCY, INDEX, LOAD
from sparsesmith.families.estimates.cost import (
    DRAM_BYTES_A_US,
    GATHER_SHARE,
    L2_BYTES,
    L2_BYTES_A_US,
    LAUNCH_US,
    LOAD_US,
    NUM_SMS,
    Prospect,
    Values,
    Work,
    combine,
    index_bytes,
    number,
)
from sparsesmith.families.family import Family
from sparsesmith.families.spmm.dense_tiles import ONE_CHUNK_PARAMETERS, tile_fits, tile_of
from sparsesmith.families.spmm.prospects import tiles_of_groups
from sparsesmith.families.spmm.splits import store_vector
from sparsesmith.families.spmm.tiles import added_pieces, output_of_tile, read_cols, read_values, step_of
from sparsesmith.families.text.program import MAX_STATIC_SHARED_BYTES, Choice, Launch, c_index_type, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.csr_tiles import LANES, LONG_ROWS
from sparsesmith.formats.format import OneOf, ParameterValue
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.program.directives import MAX_SHARED_BYTES

_CUDA = cuda_beside(__name__)

MIN_NNZ = 50_000
COVERED = 0.25
"""Share of the nonzeros in columns of hubs, from which on they are worth their copies."""
HUB_COLS = (192, 384, 768, 1536, 3072, 6144)


def _capacity(choice: Choice) -> int:
    """Slots of a warp's tile."""
    return LANES // choice.integer("lanes") * choice.integer("share")


def _hub_bytes(choice: Choice) -> int:
    """Dynamic shared memory, at most."""
    return choice.integer("hub_cols") * tile_of(choice).width * choice.element_bytes


def _static_bytes(choice: Choice) -> int:
    """Shared memory for sums of cut rows and for row bounds."""
    block, vector_bytes = choice.integer("block"), choice.integer("vector") * choice.element_bytes
    return block * vector_bytes + block // LANES * (choice.integer("rows") + 1) * 4


def _write(choice: Choice) -> str:
    tile, rows, block = tile_of(choice), choice.integer("rows"), choice.integer("block")
    narrow = choice.word("index") == "u16"
    body = tile.fill(
        _CUDA["hubs"],
        warps=block // LANES,
        bounds=rows + 1,
        all_bounds=block // LANES * (rows + 1),
        capacity=_capacity(choice),
        never=2 * choice.integer("share"),
        column=tile.column(),
        I=c_index_type(choice.word("index")),
        read_cols=read_cols(choice),
        read_values=read_values(choice),
        base="int base = tile_col_base[tile];" if narrow else "",
        number="base + col[u]" if narrow else "col[u]",
        output=output_of_tile(tile),
        store_row=store_vector(tile, f"out + row * {tile.dense_cols} + column"),
    )
    settings: dict[str, ParameterValue] = {
        "chunks": _capacity(choice) // LANES,
        "vector": 1,
        "max_rows": rows,
        "index": choice.word("index"),
        "long_rows": choice.word("long_rows"),
        "hub_cols": choice.integer("hub_cols"),
    }
    grid = "num_sms" if tile.num_tiles == 1 else f"ceil_div(num_sms,{tile.tiles_fact}),{tile.tiles_fact}"
    shared = f"num_hubs*{tile.width * choice.element_bytes}"
    main = Launch(choice.operation, grid, block, body, "free", shared, reads_values=True)
    ends, facts = added_pieces(tile)
    function = choice.value_function(step_of(choice, choice.element_bytes))
    return program(choice, settings, main, *ends, functions=(function,), facts=(*tile.facts, *facts))


def _fits(choice: Choice) -> bool:
    """Even tiles of dense columns, a warp's tile of whole chunks; a block's shared memory, and registers without spills
    (measured)."""
    tile, static = tile_of(choice), _static_bytes(choice)
    shared = static <= MAX_STATIC_SHARED_BYTES and _hub_bytes(choice) + static <= MAX_SHARED_BYTES
    in_flight = choice.integer("unroll") * choice.element_bytes
    registers = choice.integer("block") <= 512 or in_flight <= 16
    return tile_fits(choice) and not tile.overhangs and _capacity(choice) % LANES == 0 and shared and registers


def _prospects(work: Work) -> Iterator[Prospect]:
    """Where popular columns cover enough of the nonzeros."""
    pattern = work.statistics.pattern
    counts = np.sort(np.bincount(pattern.col_indices, minlength=pattern.num_cols))[::-1]
    covered = np.cumsum(counts) / work.nnz
    mean, longest = work.statistics.mean, work.statistics.longest
    for tile in tiles_of_groups(work):
        lanes, width = number(tile, "lanes"), number(tile, "lanes") * number(tile, "vector")
        if work.num_dense_cols % width:
            continue
        for rest in combine(
            hub_cols=HUB_COLS, share=(16, 32, 64), unroll=(8, 4), block=(512, 1024, 256), load=("ldg",)
        ):
            share = float(covered[min(number(rest, "hub_cols"), covered.size) - 1])
            if share < COVERED or number(rest, "hub_cols") >= 2 * pattern.num_cols:
                continue
            capacity = LANES // lanes * number(rest, "share")
            rows = min((16, 32, 64, 128), key=lambda size: abs(size - 1.5 * capacity / mean))
            yield _prospect(
                work,
                {
                    **tile,
                    **rest,
                    "rows": rows,
                    "long_rows": "split" if longest > capacity else "refuse",
                    "index": "u16" if pattern.num_cols + number(rest, "hub_cols") <= 2**16 else "i32",
                },
                share,
                capacity,
            )


def _prospect(work: Work, values: Values, covered: float, capacity: int) -> Prospect:
    """Copies of hubs and what they do not cover come from the L2, or from beyond it."""
    pattern, size = work.statistics.pattern, work.element_bytes
    width = number(values, "lanes") * number(values, "vector") * size
    across = work.num_dense_cols * size / width
    copies = NUM_SMS * min(number(values, "hub_cols"), pattern.num_cols) * width
    far = GATHER_SHARE * (1 - covered) * work.nnz * work.num_dense_cols * size
    far_us = far / (L2_BYTES_A_US if work.vector_bytes < L2_BYTES else DRAM_BYTES_A_US)
    tiles = work.nnz / capacity * (1 + min(work.statistics.mean / capacity, 1.0))
    warps = NUM_SMS * number(values, "block") / LANES
    matrix = tiles * capacity * (index_bytes(values["index"]) + size) * across
    chain = ceil(tiles * across / warps) * (3 + 1.5 * number(values, "share") / number(values, "unroll")) * LOAD_US
    launches = 2 if values["long_rows"] == "split" else 1
    moved = (copies + matrix + work.rows * work.num_dense_cols * size) / L2_BYTES_A_US + far_us
    return Prospect(launches * LAUNCH_US + 3 * LOAD_US + max(chain, moved), dict(values))


def _suits(pattern: Pattern) -> bool:
    return pattern.nnz >= MIN_NNZ


SPMM_HUBS = Family(
    name="spmm_hubs",
    operation="spmm",
    format="csr_tiles",
    strategy="The most popular rows of B in shared memory of a resident grid, whose warps go from tile to tile of "
    "whole rows, cut rows joined in shared memory; graphs and others with columns of very different popularity.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "hub_cols": OneOf(768, HUB_COLS),
        "share": OneOf(32, (16, 32, 64)),
        "unroll": OneOf(8, (4, 8)),
        "rows": OneOf(64, (16, 32, 64, 128)),
        "block": OneOf(512, (256, 512, 1024)),
        "long_rows": LONG_ROWS,
        "load": LOAD,
        "index": INDEX,
        "dependency": DEPENDENCY,
    },
    suits=_suits,
    write=_write,
    has_facts=True,
    allows=_fits,
    prospects=_prospects,
)

FAMILIES = (SPMM_HUBS,)
