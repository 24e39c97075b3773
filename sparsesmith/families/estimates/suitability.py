"""Which patterns a strategy can work for at all: looked at before anything is estimated, never by building a layout."""

from weakref import WeakKeyDictionary

import numpy as np

from sparsesmith.families.axes import WIDEST
from sparsesmith.matrix.pattern import Pattern

MAX_DIAGONALS = 256
MAX_DIA_PADDING = 4
SAMPLED_NONZEROS = 4096
MAX_ELL_PADDING = 3
SLOTS_TOO_FEW_TO_MATTER = 2**18


_SAMPLED: WeakKeyDictionary[Pattern, int] = WeakKeyDictionary()
"""Diagonals that a sample shows, of patterns that are alive: several families ask."""


def any_pattern(_: Pattern) -> bool:
    return True


def ell_suits(pattern: Pattern) -> bool:
    """Padding matters once it takes time to read: small matrices wait for latency, not for bytes."""
    slots = int(pattern.row_lengths.max()) * pattern.num_rows
    return slots <= MAX_ELL_PADDING * pattern.nnz or slots <= SLOTS_TOO_FEW_TO_MATTER


def dia_suits(pattern: Pattern) -> bool:
    """Counts diagonals on a sample first: most patterns have thousands and are refused at once."""
    diagonals = diagonals_at_least(pattern)
    return diagonals <= MAX_DIAGONALS and diagonals * pattern.num_rows <= MAX_DIA_PADDING * pattern.nnz + 4096


def diagonals_at_least(pattern: Pattern) -> int:
    """Those of some nonzeros."""
    if pattern not in _SAMPLED:
        step = max(1, pattern.nnz // SAMPLED_NONZEROS)
        sampled = np.arange(0, pattern.nnz, step)
        diagonals_seen = np.sort(pattern.col_indices[sampled] - pattern.rows_of(sampled))
        _SAMPLED[pattern] = 1 + int(np.count_nonzero(diagonals_seen[1:] != diagonals_seen[:-1]))
    return _SAMPLED[pattern]


def hyb_suits(pattern: Pattern) -> bool:
    """Uneven rows that are short for the most part; prospects look closer."""
    return pattern.nnz <= WIDEST * pattern.num_rows and int(pattern.row_lengths.max()) > 1
