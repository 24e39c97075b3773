"""Which routines of cuSPARSE apply to an operation and a pattern (needs no device)."""

from dataclasses import dataclass

import numpy as np

from sparsesmith.domain.pattern import Pattern
from sparsesmith_proto.message import Operation

DEFAULT_ROUTINE = "cusparse_csr_default"
"""What a user gets who does not choose."""
BLOCK_SIZES = (2, 3, 4, 8)
MIN_BLOCK_FILL = 0.4
"""BSR is tried where at least this share of its slots would hold a nonzero."""

SPMV_ALGORITHMS = {
    "default": 0,
    "coo_alg1": 1,
    "csr_alg1": 2,
    "csr_alg2": 3,
    "coo_alg2": 4,
    "sell_alg1": 5,
    "bsr_alg1": 6,
}
"""cusparseSpMVAlg_t of cusparse.h 12.x."""

SPMM_ALGORITHMS = {
    "default": 0,
    "coo_alg1": 1,
    "coo_alg2": 2,
    "coo_alg3": 3,
    "csr_alg1": 4,
    "coo_alg4": 5,
    "csr_alg2": 6,
    "csr_alg3": 12,
    "bsr_alg1": 14,
}
"""cusparseSpMMAlg_t of cusparse.h 12.x."""


@dataclass(frozen=True)
class Routine:
    """One way to call the library."""

    name: str
    storage: str
    """`csr`, `coo`, `sell` or `bsr`."""
    algorithm: int
    block_size: int = 1
    """Of bsr."""


_SPMV_ROUTINES: tuple[tuple[str, str], ...] = (
    ("csr", "default"), ("csr", "csr_alg1"), ("csr", "csr_alg2"),
    ("coo", "default"), ("coo", "coo_alg1"), ("coo", "coo_alg2"),
    ("sell", "sell_alg1"), ("bsr", "default"), ("bsr", "bsr_alg1"),
)  # fmt: skip
_SPMM_ROUTINES: tuple[tuple[str, str], ...] = (
    ("csr", "default"), ("csr", "csr_alg1"), ("csr", "csr_alg2"), ("csr", "csr_alg3"),
    ("coo", "default"), ("coo", "coo_alg1"), ("coo", "coo_alg2"), ("coo", "coo_alg3"), ("coo", "coo_alg4"),
    ("bsr", "default"), ("bsr", "bsr_alg1"),
)  # fmt: skip


def routines_for(operation: Operation, block_sizes: tuple[int, ...]) -> tuple[Routine, ...]:
    """The routines of an operation; those on BSR once for each block size."""
    match operation:
        case "spmv":
            pairs, algorithms = _SPMV_ROUTINES, SPMV_ALGORITHMS
        case "spmm":
            pairs, algorithms = _SPMM_ROUTINES, SPMM_ALGORITHMS
    routines: list[Routine] = []
    for storage, algorithm in pairs:
        suffix = algorithm.removeprefix(f"{storage}_")
        if storage == "bsr":
            routines += [
                Routine(f"cusparse_bsr{size}_{suffix}", storage, algorithms[algorithm], size) for size in block_sizes
            ]
        else:
            routines.append(Routine(f"cusparse_{storage}_{suffix}", storage, algorithms[algorithm]))
    return tuple(routines)


def useful_block_sizes(pattern: Pattern) -> tuple[int, ...]:
    """Block sizes whose blocks look full enough: cheap bounds first, the exact fill only where they pass."""
    return tuple(
        size for size in BLOCK_SIZES if _looks_blocked(pattern, size) and block_fill(pattern, size) >= MIN_BLOCK_FILL
    )


def _looks_blocked(pattern: Pattern, size: int) -> bool:
    """Whether neighbours in a row share a block column often enough for MIN_BLOCK_FILL.

    With a fill of f the `size` slots of a block row hold f * size nonzeros on average, so at least f * size - 1 of
    f * size nonzeros have their predecessor in the same block.
    """
    block_cols = pattern.col_indices // size
    same = block_cols[1:] == block_cols[:-1]
    needed = max(0.0, (MIN_BLOCK_FILL * size - 1) / (MIN_BLOCK_FILL * size))
    return pattern.nnz > 1 and float(same.mean()) >= needed


def block_fill(pattern: Pattern, size: int) -> float:
    """Share of the slots of square blocks that hold a nonzero."""
    num_block_cols = -(-pattern.num_cols // size)
    blocks = (pattern.row_indices() // size).astype(np.int64) * num_block_cols + pattern.col_indices // size
    return pattern.nnz / (np.unique(blocks).size * size * size)
