"""How long a product with a matrix in the format `bitmap` would about take: bytes, and what its tiles cost."""

from math import ceil, sqrt

from sparsesmith.families.estimates.cost import (
    DRAM_BYTES_A_US,
    L2_BYTES,
    L2_BYTES_A_US,
    LAUNCH_US,
    LOAD_US,
    NUM_SMS,
    Work,
)
from sparsesmith.formats.bitmap import CHUNK_COLS, LINE, STRIP_ROWS
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.program.directives import MAX_SHARED_BYTES

LEAST_SHARE = 0.05
"""Of places that hold a nonzero: each costs a bit and its part of a tile, whether it does or not."""
LEAST_NNZ = 100_000
STREAMS = 64
LONGEST_OF_STREAMS = 2.36
"""Standard deviations by which the longest of so many is longer than the mean."""
ROWS_OF_A_STRIP = 1.77
"""The same for rows."""
CYCLES_A_US = 1700
INSTRUCTIONS_A_CYCLE = 4 * 0.75
SHARED_READS_A_TILE = 8.25
"""A value each of eight places, and the bits."""
WARPS_TO_HIDE_LATENCY = 8


def suits(pattern: Pattern) -> bool:
    """Whether a bit an entry is less than a column a nonzero."""
    return pattern.nnz >= max(LEAST_NNZ, LEAST_SHARE * pattern.num_rows * pattern.num_cols)


def part_lines(work: Work, part_cols: int) -> float:
    """Of a piece, on average: as many as its longest stream has values, and what goes round them."""
    statistics = work.statistics
    share = work.nnz / (work.rows * statistics.pattern.num_cols)
    mean = min(part_cols, statistics.pattern.num_cols) / 4 * share
    own, of_rows = LONGEST_OF_STREAMS * sqrt(mean * (1 - share)), ROWS_OF_A_STRIP * statistics.variation * mean
    return min(part_cols / 4, mean + sqrt(own**2 + of_rows**2)) + 3.5


def bitmap_us(
    work: Work,
    part_cols: int,
    strips: int,
    splits: int,
    *,
    instructions: float,
    reads: float,
    moved: float,
    across: int,
) -> float:
    """Microseconds. `instructions` of a warp and `reads` of shared memory or L1 a tile, beside those of values;
    `moved`: bytes of the dense operand that are read again and again; `across`: times the matrix is read."""
    num_strips, num_parts = ceil(work.rows / STRIP_ROWS), ceil(work.statistics.pattern.num_cols / part_cols)
    lines, warps = part_lines(work, part_cols), strips * splits
    chunks = min(part_cols, work.statistics.pattern.num_cols) / CHUNK_COLS
    pieces = num_strips * num_parts
    matrix_bytes = pieces * (lines * LINE * work.element_bytes + chunks * 128 + 20)
    shared = warps * (lines * 1.1 * LINE * work.element_bytes + 4 * part_cols)
    blocks = ceil(num_strips / strips) * across
    rounds = ceil(num_parts / splits)
    a_multiprocessor = ceil(blocks / NUM_SMS)
    resident = min(max(1, MAX_SHARED_BYTES // shared), a_multiprocessor, 64 // warps)
    hidden = min(1.0, resident * warps / WARPS_TO_HIDE_LATENCY)
    uneven = a_multiprocessor * NUM_SMS / blocks * rounds * splits / num_parts
    cycles = max(SHARED_READS_A_TILE + reads, instructions / INSTRUCTIONS_A_CYCLE)
    tiles = pieces * chunks * 4 * across
    multiplied = tiles * cycles / (NUM_SMS * CYCLES_A_US) * uneven / hidden
    bandwidth = L2_BYTES_A_US if matrix_bytes + work.vector_bytes < L2_BYTES else DRAM_BYTES_A_US
    arrived = matrix_bytes * across / bandwidth + moved / L2_BYTES_A_US
    # The first quarter of what a thread block reads arrives before it multiplies, its last is multiplied after.
    first = min(arrived, multiplied) / (4 * max(1, a_multiprocessor * rounds / resident))
    return LAUNCH_US + LOAD_US * (5 + 2 * rounds * a_multiprocessor / resident) + max(arrived, multiplied) + first
