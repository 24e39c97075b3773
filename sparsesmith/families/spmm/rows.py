"""SpMM from CSR, row by row: a group of lanes for each row, lanes over the dense columns."""

from collections.abc import Iterator
from math import ceil

from sparsesmith.elements import ALL_TYPES
from sparsesmith.families.axes import BLOCK, INDEX, UNROLL, streamed
from sparsesmith.families.estimates.cost import Prospect, Work, combine, indices, loads, near, number
from sparsesmith.families.estimates.suitability import any_pattern
from sparsesmith.families.family import Family
from sparsesmith.families.spmm.dense_tiles import ONE_CHUNK_PARAMETERS, TILE_PARAMETERS, DenseTile, tile_fits, tile_of
from sparsesmith.families.spmm.prospects import gathered, one_chunk_tiles, tiles
from sparsesmith.families.text.idioms import batch
from sparsesmith.families.text.program import MAX_STATIC_SHARED_BYTES, Choice, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf, ParameterValue

_CUDA = cuda_beside(__name__)

MAX_ROWS = 4096


def walk_row(tile: DenseTile) -> str:
    """Adds nonzeros begin..end to `sum`, `unroll` at a time."""
    unroll = tile.choice.integer("unroll")
    if unroll == 1:
        return tile.fill(_CUDA["walk_one"])
    return tile.fill(_CUDA["walk"], batch=batch(tile.choice, 1, unroll))


def _write(choice: Choice, section: str, **places: object) -> str:
    tile = tile_of(choice)
    grid = f"ceil_div(num_rows,{choice.integer('block') // tile.lanes}){tile.grid}"
    launch = main_launch(choice, grid, tile.fill(_CUDA[section], **places))
    return program(choice, {"index": choice.word("index")}, launch, facts=tile.facts)


def _write_rows(choice: Choice) -> str:
    return _write(choice, "rows", walk=walk_row(tile_of(choice)))


def _write_shuffle(choice: Choice) -> str:
    lanes = choice.integer("lanes")
    mask = "0xffffffff" if lanes == 32 else f"{(1 << lanes) - 1:#x}u << threadIdx.x % 32 / {lanes} * {lanes}"
    return _write(choice, "shuffle", mask=mask)


def _write_staged(choice: Choice) -> str:
    tile, capacity, narrow = tile_of(choice), choice.integer("nnz_per_block"), choice.word("index") == "u16"
    places = {"base": "base + " if narrow else "", "groups": choice.integer("block") // tile.lanes}
    body = tile.fill(
        _CUDA["staged"],
        slice_base="int base = block_col_base[blockIdx.x];" if narrow else "",
        long_row=tile.fill(_CUDA["long_row"], **places),
        **places,
    )
    settings: dict[str, ParameterValue] = {
        "nnz_per_block": capacity,
        "max_rows": min(capacity, MAX_ROWS),
        "index": choice.word("index"),
    }
    return program(choice, settings, main_launch(choice, f"num_blocks{tile.grid}", body), facts=tile.facts)


def _tile_fits_exactly(choice: Choice) -> bool:
    return tile_fits(choice) and not tile_of(choice).overhangs


def _staged_fits(choice: Choice) -> bool:
    """Even tiles, and shared memory for the staged nonzeros and the partial sums."""
    size = choice.element_bytes
    shared = choice.integer("nnz_per_block") * (4 + size) + choice.integer("block") * choice.integer("vector") * size
    return _tile_fits_exactly(choice) and shared <= MAX_STATIC_SHARED_BYTES


def _rows_prospects(work: Work) -> Iterator[Prospect]:
    unrolls = near(min(work.statistics.mean, 6), (1, 2, 4, 8), 3)
    for tile in tiles(work):
        for rest in combine(
            unroll=unrolls, block=(128, 64, 256), load=loads(work)[:1], index=indices(work.statistics.narrow)
        ):
            unroll = number(rest, "unroll")
            padding = ceil(work.statistics.mean / unroll) * unroll / work.statistics.mean
            chain = 2 + 2 * ceil(work.statistics.longest / unroll)
            yield gathered(work, {**tile, **rest}, work.csr_bytes(str(rest["index"])), min(padding, 2), chain)


def _shuffle_prospects(work: Work) -> Iterator[Prospect]:
    for tile in tiles(work):
        for rest in combine(
            unroll=(4, 8), block=(128, 64, 256), load=loads(work)[:1], index=indices(work.statistics.narrow)
        ):
            chain = 2 + 1.6 * ceil(work.statistics.longest / number(rest, "unroll"))
            yield gathered(work, {**tile, **rest}, work.csr_bytes(str(rest["index"])), 1.1, chain)


def _staged_prospects(work: Work) -> Iterator[Prospect]:
    for tile in one_chunk_tiles(work):
        for rest in combine(
            unroll=(4, 8),
            block=(128, 256),
            load=loads(work)[:1],
            index=indices(work.statistics.narrow_row_blocks(512)),
            nnz_per_block=(256, 512, 128),
        ):
            if rest["index"] == "u16" and not work.statistics.narrow_row_blocks(number(rest, "nnz_per_block")):
                continue
            groups = max(1, number(rest, "block") // number(tile, "lanes"))
            capacity = number(rest, "nnz_per_block")
            chain = (
                5 + 0.5 * min(work.statistics.longest, capacity) + max(0, work.statistics.longest - capacity) / groups
            )
            yield gathered(work, {**tile, **rest}, work.csr_bytes(str(rest["index"])), 1.0, chain)


SPMM_ROWS = Family(
    name="spmm_rows",
    operation="spmm",
    format="csr",
    strategy="A group of lanes a row, vectors of dense columns a lane, batches of gathers in flight; the workhorse.",
    parameters={**TILE_PARAMETERS, "unroll": UNROLL, "block": BLOCK, **streamed(index=INDEX)},
    suits=lambda pattern: pattern.num_rows < 2**26,
    write=_write_rows,
    has_facts=True,
    allows=tile_fits,
    element_types=ALL_TYPES,
    prospects=_rows_prospects,
)

SPMM_ROWS_SHUFFLE = Family(
    name="spmm_rows_shuffle",
    operation="spmm",
    format="csr",
    strategy="As spmm_rows, with nonzeros loaded by the group side by side and passed round by shuffles; long rows.",
    parameters=SPMM_ROWS.parameters,
    suits=lambda pattern: pattern.num_rows < 2**26 and pattern.nnz >= 4 * pattern.num_rows,
    write=_write_shuffle,
    has_facts=True,
    allows=lambda choice: _tile_fits_exactly(choice) and choice.integer("lanes") >= max(4, choice.integer("unroll")),
    prospects=_shuffle_prospects,
)

SPMM_ROWS_STAGED = Family(
    name="spmm_rows_staged",
    operation="spmm",
    format="csr_rowblocks",
    strategy="A block stages whole rows in shared memory and shares a long row among all its groups; short rows with "
    "some long ones.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "unroll": UNROLL,
        "block": BLOCK,
        **streamed(index=INDEX, nnz_per_block=OneOf(512, (128, 256, 512, 1024, 2048))),
    },
    suits=any_pattern,
    write=_write_staged,
    has_facts=True,
    allows=_staged_fits,
    prospects=_staged_prospects,
)

FAMILIES = (SPMM_ROWS, SPMM_ROWS_SHUFFLE, SPMM_ROWS_STAGED)
