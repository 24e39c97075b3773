"""Matrices like others and unlike them: what a policy is taught on beside the few hundred that were measured.

Each change is a pure function of a pattern and a generator: it keeps some of what matters for speed and takes other
things away (order, size, lengths of rows, blocks), so that a matrix's name tells nothing of what is fast on it.
"""

import random
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.matrix.pattern import Pattern, pattern_from_indices, pattern_from_scipy

LEAST_NNZ = 500
TRIES = 4
"""For each variant that is asked for: a change may leave too little, or too much."""

Change = Callable[[Pattern, np.random.Generator], Pattern]
Indices = npt.NDArray[np.integer]


def variants(name: str, pattern: Pattern, count: int, most_nnz: int) -> Iterator[tuple[str, Pattern]]:
    """Up to `count` changed matrices of 500 to `most_nnz` nonzeros, each with a name that says what was changed; one or
    two changes each. The same for the same arguments."""
    made = 0
    for number in range(TRIES * count):
        chance = random.Random(f"{name} {number}")
        names = chance.sample(list(CHANGES), chance.choice((1, 1, 2)))
        generator = np.random.default_rng(chance.getrandbits(64))
        changed = pattern
        for each in names:
            if changed.nnz <= most_nnz:
                changed = CHANGES[each](changed, generator)
        if LEAST_NNZ <= changed.nnz <= most_nnz:
            made += 1
            yield f"{name}~{'~'.join(names)}~{number}", changed
        if made == count:
            return


def _of(pattern: Pattern, rows: Indices, cols: Indices, shape: tuple[int, int] | None = None) -> Pattern:
    """Entries that are named twice count once."""
    num_rows, num_cols = (pattern.num_rows, pattern.num_cols) if shape is None else shape
    return pattern_from_indices(num_rows, num_cols, rows, cols) if rows.size else _one_entry(num_rows, num_cols)


def _one_entry(num_rows: int, num_cols: int) -> Pattern:
    """Of what would be left without any, which no pattern is."""
    return pattern_from_indices(max(num_rows, 1), max(num_cols, 1), [0], [0])


def rows_shuffled(pattern: Pattern, generator: np.random.Generator) -> Pattern:
    """Columns stay: neighbours in a row are neighbours still."""
    return _of(pattern, generator.permutation(pattern.num_rows)[pattern.row_indices()], pattern.col_indices)


def renumbered(pattern: Pattern, generator: np.random.Generator) -> Pattern:
    """A square matrix's rows and columns alike, others apart: a graph whose vertices were numbered otherwise."""
    of_rows = generator.permutation(pattern.num_rows)
    is_square = pattern.num_rows == pattern.num_cols
    of_cols = of_rows if is_square else generator.permutation(pattern.num_cols)
    return _of(pattern, of_rows[pattern.row_indices()], of_cols[pattern.col_indices])


def shuffled_nearby(pattern: Pattern, generator: np.random.Generator) -> Pattern:
    """Rows and columns move by a few places to a few hundred: an order that is local, and not a good one."""
    reach = float(2 ** generator.uniform(2, 9))

    def moved(extent: int) -> Indices:
        places = np.empty(extent, np.int64)
        places[np.argsort(np.arange(extent) + reach * generator.random(extent))] = np.arange(extent)
        return places

    return _of(pattern, moved(pattern.num_rows)[pattern.row_indices()], moved(pattern.num_cols)[pattern.col_indices])


def transposed(pattern: Pattern, generator: np.random.Generator) -> Pattern:
    return _of(pattern, pattern.col_indices, pattern.row_indices(), (pattern.num_cols, pattern.num_rows))


def part(pattern: Pattern, generator: np.random.Generator) -> Pattern:
    """Some rows that follow each other, all of their columns or some that follow each other."""
    share = generator.uniform(0.1, 0.8)
    rows, num_rows = _run(pattern.num_rows, share, generator)
    cols, num_cols = (0, pattern.num_cols) if generator.random() < 0.5 else _run(pattern.num_cols, share, generator)
    own_rows, own_cols = pattern.row_indices() - rows, pattern.col_indices - cols
    inside = (own_rows >= 0) & (own_rows < num_rows) & (own_cols >= 0) & (own_cols < num_cols)
    return _of(pattern, own_rows[inside], own_cols[inside], (num_rows, num_cols))


def _run(extent: int, share: float, generator: np.random.Generator) -> tuple[int, int]:
    """First of a run, and how many."""
    size = max(1, int(share * extent))
    return int(generator.integers(extent - size + 1)), size


def thinned(pattern: Pattern, generator: np.random.Generator) -> Pattern:
    """Each nonzero stays with the same chance."""
    kept = generator.random(pattern.nnz) < generator.uniform(0.2, 0.9)
    return _of(pattern, pattern.row_indices()[kept], pattern.col_indices[kept])


def repeated(pattern: Pattern, generator: np.random.Generator) -> Pattern:
    """Along the diagonal: a batch of graphs."""
    copies = int(generator.integers(2, 9))
    number = np.arange(copies, dtype=np.int64)[:, None]
    rows = (number * pattern.num_rows + pattern.row_indices()).ravel()
    cols = (number * pattern.num_cols + pattern.col_indices).ravel()
    return _of(pattern, rows, cols, (copies * pattern.num_rows, copies * pattern.num_cols))


def in_blocks(pattern: Pattern, generator: np.random.Generator) -> Pattern:
    """A dense block for each nonzero: several unknowns a vertex."""
    height, width = generator.choice([(2, 2), (3, 3), (4, 4), (3, 1), (1, 2), (6, 6)])
    dense = np.ones((int(height), int(width)), np.int8)
    kept = pattern.to_scipy(np.ones(pattern.nnz))
    return pattern_from_scipy(scipy.sparse.kron(kept, dense, format="csr"))


def with_long_rows(pattern: Pattern, generator: np.random.Generator) -> Pattern:
    """A few rows, and as often columns, are filled to a share."""
    few = int(generator.integers(1, 9))
    share = generator.uniform(0.02, 0.6)
    length = max(1, int(share * pattern.num_cols))
    rows = np.repeat(generator.integers(pattern.num_rows, size=few), length)
    cols = generator.integers(pattern.num_cols, size=rows.size)
    return _of(pattern, np.append(pattern.row_indices(), rows), np.append(pattern.col_indices, cols))


def with_popular_columns(pattern: Pattern, generator: np.random.Generator) -> Pattern:
    """A share of the nonzeros goes to columns drawn by a power law."""
    moved = generator.random(pattern.nnz) < generator.uniform(0.2, 0.8)
    drawn = (pattern.num_cols * generator.random(pattern.nnz) ** generator.uniform(2, 6)).astype(np.int64)
    return _of(pattern, pattern.row_indices(), np.where(moved, drawn, pattern.col_indices))


def with_neighbours(pattern: Pattern, generator: np.random.Generator) -> Pattern:
    """Each nonzero and those to its right: runs of a few columns."""
    run = int(generator.integers(2, 6))
    cols = (pattern.col_indices[:, None].astype(np.int64) + np.arange(run)).ravel()
    rows = np.repeat(pattern.row_indices(), run)
    inside = cols < pattern.num_cols
    return _of(pattern, rows[inside], cols[inside])


def with_empty_rows(pattern: Pattern, generator: np.random.Generator) -> Pattern:
    """Some rows lose all that they have."""
    kept = (generator.random(pattern.num_rows) < generator.uniform(0.3, 0.95))[pattern.row_indices()]
    return _of(pattern, pattern.row_indices()[kept], pattern.col_indices[kept])


CHANGES: Mapping[str, Change] = {
    change.__name__: change
    for change in (
        rows_shuffled,
        renumbered,
        shuffled_nearby,
        transposed,
        part,
        thinned,
        repeated,
        in_blocks,
        with_long_rows,
        with_popular_columns,
        with_neighbours,
        with_empty_rows,
    )
}
