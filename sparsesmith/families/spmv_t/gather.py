"""y = A^T x in a fixed order: the columns of A, each value read from where it stands in A."""

from collections.abc import Iterator

from sparsesmith.elements import ALL_TYPES
from sparsesmith.families.axes import LARGE_BLOCK, UNROLL, streamed
from sparsesmith.families.estimates.cost import Prospect, Work, combine, estimate, loads, near, number
from sparsesmith.families.estimates.suitability import any_pattern
from sparsesmith.families.family import Family
from sparsesmith.families.text.idioms import warp_sum
from sparsesmith.families.text.program import Choice, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf
from sparsesmith.formats.values.storage import ValueStorage

_CUDA = cuda_beside(__name__)

SECTOR_SHARE = 0.5
"""Part of a sector of 32 bytes that reading one value out of order is taken to cost: neighbours may need the rest."""


def _write(choice: Choice) -> str:
    lanes = choice.integer("lanes")
    cols = choice.integer("block") // lanes
    body = choice.fill(_CUDA["gather"], cols=cols, stride=lanes * choice.integer("unroll"), warp_sum=warp_sum(lanes))
    return program(choice, {}, main_launch(choice, f"ceil_div(num_cols,{cols})", body))


def _takes_none(_: Choice, __: ValueStorage) -> bool:
    return False


def _prospects(work: Work) -> Iterator[Prospect]:
    cols = work.statistics.pattern.num_cols
    mean = work.nnz / cols
    lanes_tried = near(mean, (1, 2, 4, 8, 16, 32), 3)
    for values in combine(lanes=lanes_tried, unroll=(2, 4, 1), block=(128, 256), load=loads(work)):
        lanes = number(values, "lanes")
        batches = max(1.0, mean / lanes / number(values, "unroll"))
        size = work.nnz * (8.0 + SECTOR_SHARE * 32) + 4.0 * cols
        instructions = (work.nnz * 10 + cols * lanes * 12) / 32
        yield Prospect(estimate(work, size, instructions, 2 + 3 * batches, cols * lanes), dict(values))


GATHER = Family(
    name="transposed_gather",
    operation="spmv_t",
    format="csc",
    strategy="A few lanes a column gather values by their places and sum in a fixed order; one store for each result, "
    "equal bits in every run.",
    parameters={
        "lanes": OneOf(8, (1, 2, 4, 8, 16, 32)),
        "unroll": UNROLL,
        "block": LARGE_BLOCK,
        **streamed(),
    },
    suits=any_pattern,
    write=_write,
    element_types=ALL_TYPES,
    prospects=_prospects,
    takes=_takes_none,
)

FAMILIES = (GATHER,)
