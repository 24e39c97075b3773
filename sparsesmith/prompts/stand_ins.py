"""Made matrices that can be shown in another's place: what does a policy do that reads a wrong one?"""

from functools import lru_cache

import numpy as np

from sparsesmith.matrix.pattern import Pattern, pattern_from_indices

NUM_STAND_INS = 1024
MAX_NONZEROS = 1 << 17
"""Of one, before duplicates are merged."""


def stand_in(pattern: Pattern) -> Pattern:
    """Another matrix: always the same one for the same matrix, and it says nothing of it."""
    return _made(int(pattern.digest[:8], 16) % NUM_STAND_INS)


@lru_cache(maxsize=64)
def _made(number: int) -> Pattern:
    """512 to 32,768 rows of equal, geometric or heavy-tailed lengths, 1 to 64 in the mean, anywhere or within a band of
    four times that, where duplicates are merged and long rows cut."""
    generator = np.random.Generator(np.random.PCG64(number))
    num_rows = int(2 ** generator.uniform(9, 15))
    mean = min(2 ** generator.uniform(0, 6), MAX_NONZEROS / num_rows)
    spread = (
        np.ones(num_rows),
        generator.exponential(size=num_rows),
        generator.pareto(1.5, num_rows) / 2,
    )[generator.integers(3)]
    lengths = np.clip(np.rint(mean * spread), 0, num_rows).astype(np.int64)
    lengths[0] = max(1, lengths[0])
    lengths[np.cumsum(lengths) > MAX_NONZEROS] = 0
    rows = np.repeat(np.arange(num_rows), lengths)
    width = num_rows if generator.random() < 0.5 else min(num_rows, int(4 * mean) + 1)
    cols = (rows + generator.integers(-width // 2, width // 2 + 1, rows.size)) % num_rows
    return pattern_from_indices(num_rows, num_rows, rows, cols)
