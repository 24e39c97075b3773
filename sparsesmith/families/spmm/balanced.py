"""SpMM over equal pieces of work: a group of lanes walks one piece, rows that it cuts are completed by a carry."""

from collections.abc import Iterator

from sparsesmith.families.axes import BLOCK, UNROLL, streamed
from sparsesmith.families.estimates.cost import Prospect, Work, combine, loads, number
from sparsesmith.families.estimates.suitability import any_pattern
from sparsesmith.families.family import Family
from sparsesmith.families.spmm.dense_tiles import TILE_PARAMETERS, tile_fits, tile_of
from sparsesmith.families.spmm.prospects import gathered, tiles
from sparsesmith.families.spmm.rows import walk_row
from sparsesmith.families.text.program import Choice, Launch, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf

_CUDA = cuda_beside(__name__)


def _write(choice: Choice) -> str:
    tile, block = tile_of(choice), choice.integer("block")
    body = tile.fill(_CUDA["merge"], walk=walk_row(tile))
    return program(
        choice,
        {"items": choice.integer("items"), "balance": choice.word("balance")},
        main_launch(choice, f"ceil_div(num_segments,{block // tile.lanes}){tile.grid}", body),
        Launch("add_carry", f"ceil_div(num_segments*{tile.dense_cols},256)", 256, tile.fill(_CUDA["carry"])),
        facts=tile.facts,
    )


def _prospects(work: Work) -> Iterator[Prospect]:
    for tile in tiles(work):
        for rest in combine(
            items=(64, 32, 128, 256), balance=("merge", "nnz"), unroll=(4, 8), block=(128, 64), load=loads(work)[:1]
        ):
            chain = 4 + 2 * number(rest, "items") / min(number(rest, "unroll"), max(1.0, work.statistics.mean))
            carries = 2.0 * work.nnz / number(rest, "items") * work.num_dense_cols * work.element_bytes
            yield gathered(work, {**tile, **rest}, work.csr_bytes() + carries, 1.15, min(chain, 60), launches=2)


SPMM_MERGE = Family(
    name="spmm_merge",
    operation="spmm",
    format="csr_merge",
    strategy="Equal pieces of work for each group of lanes, by merge path or by nonzeros, cut rows completed by a "
    "second launch; skewed rows.",
    parameters={
        **TILE_PARAMETERS,
        "items": OneOf(64, (16, 32, 64, 128, 256, 512)),
        "balance": OneOf("merge", ("merge", "nnz")),
        "unroll": UNROLL,
        "block": BLOCK,
        **streamed(),
    },
    suits=any_pattern,
    write=_write,
    has_facts=True,
    allows=tile_fits,
    prospects=_prospects,
)

FAMILIES = (SPMM_MERGE,)
