"""How full a pattern's blocks would be: where BSR and blocked ELL are worth trying (needs no device)."""

from sparsesmith.cuda.routines import BLOCK_SIZES, ELL_BLOCK_SIZES
from sparsesmith.formats.bsr import count_blocks
from sparsesmith.matrix.features import block_fill as fill_of_a_sample
from sparsesmith.matrix.pattern import Pattern

MIN_BLOCK_FILL = 0.4
"""BSR is tried where at least this share of its slots would hold a nonzero."""
MIN_ELL_FILL = 0.25
"""Blocked ELL is tried where at least this share of the slots of its blocks would hold a nonzero, and of all slots with
those that pad every block row to the longest (MAX_ELL_PADDING in matrices.py)."""
SAMPLED_FILL_MARGIN = 0.1
"""A sample this far from the limit decides; all blocks are counted only where it is nearer."""


def useful_block_sizes(pattern: Pattern) -> tuple[int, ...]:
    """Block sizes whose blocks are full enough: a sample decides where it is clear, all blocks where it is not."""
    return tuple(size for size in BLOCK_SIZES if _is_full_enough(pattern, size, MIN_BLOCK_FILL))


def useful_ell_block_sizes(pattern: Pattern) -> tuple[int, ...]:
    """The same of blocked ELL; no blocks that are larger than the matrix, which the library refuses."""
    return tuple(
        size
        for size in ELL_BLOCK_SIZES
        if size <= min(pattern.num_rows, pattern.num_cols) and _is_full_enough(pattern, size, MIN_ELL_FILL)
    )


def _is_full_enough(pattern: Pattern, size: int, least: float) -> bool:
    if not _may_be_full_enough(pattern, size, least):
        return False
    fill = fill_of_a_sample(pattern, size, size)
    if abs(fill - least) < SAMPLED_FILL_MARGIN or not fill:
        fill = block_fill(pattern, size)
    return fill >= least


def _may_be_full_enough(pattern: Pattern, size: int, least: float) -> bool:
    """Whether neighbours in a row share a block column often enough.

    With a fill of f the `size` slots of a block row hold f * size nonzeros on average, so at least f * size - 1 of
    f * size nonzeros have their predecessor in the same block.
    """
    block_cols = pattern.col_indices // size
    needed = max(0.0, (least * size - 1) / (least * size))
    return pattern.nnz > 1 and float((block_cols[1:] == block_cols[:-1]).mean()) >= needed


def block_fill(pattern: Pattern, size: int) -> float:
    """Share of the slots of square blocks that hold a nonzero."""
    return pattern.nnz / (count_blocks(pattern, size, size) * size * size)
