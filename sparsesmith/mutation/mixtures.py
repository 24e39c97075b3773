"""Two families' parts in one program: the body of the rows by few lanes, the long ones by many.

A CSR family treats all rows alike, so that one long row holds up its warp. Here rows above a limit are left to the
whole warp (or block, for SpMM) in the same launch, or to a second launch. The parts are the families' own.
"""

from collections.abc import Iterator

import numpy as np

from sparsesmith.errors import SparsesmithError
from sparsesmith.families import FAMILIES
from sparsesmith.families.spmm.dense_tiles import tile_of
from sparsesmith.families.spmm.rows import walk_row
from sparsesmith.families.text.idioms import dot, warp_sum
from sparsesmith.families.text.program import Choice, Launch, main_launch, program
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.mutation.child import Child
from sparsesmith.mutation.subject import Subject

_CUDA = cuda_beside(__name__)

BODIES = {"csr_scalar": 1, "csr_vector": None}
"""SpMV families whose rows can be parted, with their lanes a row; None: a parameter."""
SPMM_BODY = "spmm_rows"
PLAIN_INDICES = ("i32", "u16")
"""Not those that count from a row's first column."""
LEAST_LIMIT = 8
LONG_UNROLLS = (1, 2, 4)
LONG_QUANTILES = (0.75, 0.9, 0.99)
"""Of the row lengths: where the body may end."""


def mixtures(subject: Subject) -> Iterator[Child]:
    """Body and long rows in one launch and in two."""
    instance = subject.instance
    if instance is None or instance.parameters.get("index") not in PLAIN_INDICES:
        return
    family = FAMILIES[instance.family] if instance.family in (*BODIES, SPMM_BODY) else None
    if family is None:
        return
    choice = Choice(instance.parameters, subject.element_type, subject.num_dense_cols, subject.operation, family.format)
    for longest in limits(subject):
        try:
            yield from _spmm(choice, longest) if instance.family == SPMM_BODY else _spmv(choice, longest)
        except SparsesmithError:
            continue


def limits(subject: Subject) -> list[int]:
    """Lengths of rows that the body may end at: of some rows, and not of all."""
    lengths = subject.pattern.row_lengths
    cuts = {max(LEAST_LIMIT, int(np.quantile(lengths, share))) for share in LONG_QUANTILES}
    return sorted(cut for cut in cuts if cut < int(lengths.max()))


def _spmv(choice: Choice, longest: int) -> Iterator[Child]:
    block, lanes = choice.integer("block"), choice.integer("lanes") if "lanes" in choice.values else 1
    grid = f"ceil_div(num_rows,{block // lanes})"
    settings = {"index": choice.word("index")}
    for unroll in LONG_UNROLLS:
        places = {
            "lanes": lanes,
            "longest": longest,
            "dot": dot(choice, "begin + lane" if lanes > 1 else "begin", lanes),
            "warp_sum": warp_sum(lanes),
            "long_dot": dot(choice, "first + threadIdx.x % 32", 32, unroll=unroll),
            "long_sum": warp_sum(32),
        }
        mixed, body, long_rows = (choice.fill(_CUDA[name], **places) for name in ("mixed_warp", "body", "long_rows"))
        kernel = main_launch(choice, grid, mixed)
        yield Child("long rows by warps, one launch", program(choice, settings, kernel))
        if block % 32 == 0:
            second = Launch("long_rows", f"ceil_div(num_rows,{block})", block, long_rows, choice.word("registers"))
            first = main_launch(choice, grid, body)
            yield Child("long rows by warps, two launches", program(choice, settings, first, second))


def _spmm(choice: Choice, longest: int) -> Iterator[Child]:
    tile = tile_of(choice)
    groups = choice.integer("block") // tile.lanes
    if tile.overhangs or groups < 2 or tile.chunks > 1:
        return
    body = tile.fill(_CUDA["mixed_block"], longest=longest, groups=groups, walk=walk_row(tile))
    launch = main_launch(choice, f"ceil_div(num_rows,{groups}){tile.grid}", body)
    yield Child("long rows by blocks, one launch", program(choice, {"index": choice.word("index")}, launch))
