"""SpMM with a few columns of the whole dense operand in shared memory: nearly dense matrices, such as pruned layers."""

from collections.abc import Iterator
from math import ceil

from sparsesmith.families.axes import INDEX, streamed
from sparsesmith.families.estimates.cost import (
    L2_BYTES_A_US,
    NUM_SMS,
    Prospect,
    Values,
    Work,
    combine,
    estimate,
    indices,
    number,
)
from sparsesmith.families.family import Family
from sparsesmith.families.spmm.dense_tiles import ONE_CHUNK_PARAMETERS, tile_fits, tile_of
from sparsesmith.families.spmm.prospects import tiles_of_groups
from sparsesmith.families.spmm.splits import few_suffice, shuffle_sum, store_vector
from sparsesmith.families.text.program import Choice, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf
from sparsesmith.program.directives import MAX_SHARED_BYTES

_CUDA = cuda_beside(__name__)

SHARED_BYTES_A_US = 25e6
CAPACITIES = (256, 512, 1024, 2048, 4096, 7168)
"""Rows of B in shared memory."""


def _slab_bytes(choice: Choice) -> int:
    """Shared memory: `capacity` rows of the columns of one group."""
    return choice.integer("capacity") * tile_of(choice).width * choice.element_bytes


def _write(choice: Choice) -> str:
    tile, splits, block = tile_of(choice), choice.integer("splits"), choice.integer("block")
    threads, width = tile.lanes * splits, tile.dense_cols
    rows = block // threads
    first = f"blockIdx.y * {tile.width}"
    source = f"b + (size_t)(k / {tile.lanes}) * {width} + {first} + k % {tile.lanes} * {tile.vector}"
    body = tile.fill(
        _CUDA["resident"],
        rows=rows,
        rows_a_block=rows * choice.integer("passes"),
        threads=threads,
        times=" + u" if splits == 1 else f" + u * {splits}",
        copied=4 * block,
        source=tile.read(source),
        stride=splits * choice.integer("unroll"),
        reduce=shuffle_sum(tile, splits),
        store_row=store_vector(tile, f"c + (size_t)row * {width} + {first} + lane * {tile.vector}"),
    )
    grid = f"ceil_div(num_rows,{rows * choice.integer('passes')}),{tile.tiles_fact}"
    launch = main_launch(choice, grid, body, shared=str(_slab_bytes(choice)))
    return program(choice, {"index": choice.word("index")}, launch, facts=tile.facts)


def _resident_fits(choice: Choice) -> bool:
    """Even tiles, a row's groups within one warp, the slab within shared memory."""
    tile = tile_of(choice)
    even = tile_fits(choice) and not tile.overhangs
    many = choice.integer("block") > 512 and choice.word("registers") == "few"
    registers = few_suffice(choice, choice.integer("unroll")) and not many
    shared = _slab_bytes(choice) <= MAX_SHARED_BYTES
    return even and registers and shared and tile.lanes * choice.integer("splits") <= 32


def _prospects(work: Work) -> Iterator[Prospect]:
    num_cols = work.statistics.pattern.num_cols
    capacity = min(size for size in CAPACITIES if size >= num_cols)
    for tile in tiles_of_groups(work):
        lanes = number(tile, "lanes")
        for rest in combine(
            splits=(32 // lanes, 16 // lanes, 8 // lanes), passes=(1, 2, 4, 8), unroll=(4, 8), block=(512, 1024, 256),
            load=("ldg",), index=indices(work.statistics.narrow),
        ):  # fmt: skip
            yield _prospect(work, {**tile, **rest, "capacity": capacity})


def _prospect(work: Work, values: Values) -> Prospect:
    """Slabs are copied from L2 once a block; after that all reads of B stay on the multiprocessor."""
    lanes, block, passes = number(values, "lanes"), number(values, "block"), number(values, "passes")
    splits = max(1, number(values, "splits"))
    width = number(values, "vector") * lanes * work.element_bytes
    slab = number(values, "capacity") * width
    tiles = work.num_dense_cols * work.element_bytes / width
    blocks = ceil(work.rows * lanes * splits / (block * passes)) * tiles
    at_once = NUM_SMS * max(1, min(2048 // block, MAX_SHARED_BYTES // max(slab, 1)))
    waves = ceil(blocks / at_once)
    conflicts = min(2.0, 128 / width)
    gathered = work.nnz * work.num_dense_cols * work.element_bytes * conflicts / SHARED_BYTES_A_US
    copied = blocks * work.statistics.pattern.num_cols * width / L2_BYTES_A_US
    batches = ceil(work.statistics.longest / (splits * number(values, "unroll")))
    chain = waves * (4 + passes * (2 + batches))
    read = estimate(work, work.csr_bytes(str(values["index"])) * tiles, 0.0, chain, 0.0)
    return Prospect(read + copied + gathered * max(1.0, NUM_SMS / blocks), dict(values))


SPMM_RESIDENT = Family(
    name="spmm_resident",
    operation="spmm",
    format="csr",
    strategy="A block holds a few columns of all of B in shared memory and multiplies many rows by them; nearly dense "
    "matrices of few columns, such as pruned layers.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "capacity": OneOf(1024, CAPACITIES),
        "splits": OneOf(8, (1, 2, 4, 8, 16)),
        "passes": OneOf(1, (1, 2, 4, 8)),
        "unroll": OneOf(4, (2, 4, 8)),
        "block": OneOf(512, (256, 512, 1024)),
        **streamed(index=INDEX),
    },
    suits=lambda pattern: pattern.num_cols <= 7168 and pattern.nnz >= 8 * max(pattern.num_cols, pattern.num_rows),
    write=_write,
    has_facts=True,
    allows=_resident_fits,
    prospects=_prospects,
)

FAMILIES = (SPMM_RESIDENT,)
