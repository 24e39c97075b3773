"""Large irregular matrices of the kinds that gain least: made here, from a seed each. Deterministic."""

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.spatial import cKDTree

from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy

Maker = Callable[[int], Pattern]
"""Of a seed."""


def neighbours(num_points: int, count: int, seed: int) -> Pattern:
    """Points in a cube, each with its nearest ones, made symmetric; in random order."""
    points = np.random.default_rng(seed).random((num_points, 3))
    near = cKDTree(points).query(points, count + 1)[1][:, 1:]
    graph = _ones(np.repeat(np.arange(num_points), count), near.reshape(-1), (num_points, num_points))
    return pattern_from_scipy(graph + graph.T)


def wide(num_rows: int, num_cols: int, length: int, seed: int) -> Pattern:
    """Few rows over many columns, half of each row in runs of eight: incidences and feature matrices."""
    return pattern_from_scipy(_wide(num_rows, num_cols, length, seed))


def tall(num_rows: int, num_cols: int, length: int, seed: int) -> Pattern:
    """The other way round: `length` nonzeros a column."""
    return pattern_from_scipy(_wide(num_cols, num_rows, length, seed).T.tocsr())


def _wide(num_rows: int, num_cols: int, length: int, seed: int) -> scipy.sparse.csr_matrix:
    rng = np.random.default_rng(seed)
    runs = rng.integers(0, num_cols - 8, (num_rows, length // 16))[:, :, None] + np.arange(8)
    single = rng.integers(0, num_cols, (num_rows, length // 2))
    cols = np.concatenate([runs.reshape(num_rows, -1), single], axis=1)
    return _ones(np.repeat(np.arange(num_rows), cols.shape[1]), cols.reshape(-1), (num_rows, num_cols))


def dense_rows(num_rows: int, mean: int, num_dense: int, seed: int) -> Pattern:
    """Near-diagonal rows of a few nonzeros and some rows and columns that a tenth of all others meet: circuits."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(num_rows), mean)
    cols = np.clip(rows + np.round(rng.laplace(0, 60, rows.size)).astype(np.int64), 0, num_rows - 1)
    supplies = np.repeat(rng.choice(num_rows, num_dense, replace=False), num_rows // 10)
    met = rng.integers(0, num_rows, supplies.size)
    graph = _ones(np.concatenate([rows, supplies, met]), np.concatenate([cols, met, supplies]), (num_rows, num_rows))
    return pattern_from_scipy(graph)


def co_occurrence(num_words: int, num_texts: int, length: int, seed: int) -> Pattern:
    """Words by Zipf's law that stand in one text: symmetric, a few rows nearly full."""
    rng = np.random.default_rng(seed)
    ranks = np.minimum(rng.zipf(1.35, num_texts * length) - 1, num_words - 1)
    names = rng.permutation(num_words)
    texts = _ones(np.repeat(np.arange(num_texts), length), names[ranks], (num_texts, num_words)).astype(np.int32)
    return pattern_from_scipy(texts.T @ texts)


def web(num_pages: int, mean: int, seed: int) -> Pattern:
    """Pages of hosts: most links lead into the same host, the others to popular pages of any."""
    rng = np.random.default_rng(seed)
    lengths = np.minimum(rng.pareto(1.7, num_pages) * mean / 2 + 1, 3000).astype(np.int64)
    rows = np.repeat(np.arange(num_pages), lengths)
    near = np.clip(
        rows + np.round(rng.standard_t(1.2, rows.size) * 20).clip(-5e5, 5e5).astype(np.int64), 0, num_pages - 1
    )
    popular = rng.permutation(num_pages)[np.minimum(rng.pareto(0.9, rows.size) * 50, num_pages - 1).astype(np.int64)]
    return pattern_from_scipy(
        _ones(rows, np.where(rng.random(rows.size) < 0.75, near, popular), (num_pages, num_pages))
    )


def pruned(num_rows: int, num_cols: int, share: float, seed: int) -> Pattern:
    """A layer whose smallest weights were left out, `share` of them: no structure, rows of about one length."""
    kept = np.random.default_rng(seed).random((num_rows, num_cols)) >= share
    return pattern_from_scipy(scipy.sparse.csr_matrix(kept))


def _ones(
    rows: npt.NDArray[np.integer], cols: npt.NDArray[np.integer], shape: tuple[int, int]
) -> scipy.sparse.csr_matrix:
    return scipy.sparse.csr_matrix((np.ones(rows.size, np.int8), (rows, cols)), shape=shape)


KINDS: dict[str, tuple[str, Maker]] = {
    "neighbours_250000": ("neighbours", lambda seed: neighbours(250_000, 10, seed)),
    "wide_20000": ("wide", lambda seed: wide(20_000, 2_000_000, 128, seed)),
    "tall_2000000": ("tall", lambda seed: tall(2_000_000, 20_000, 128, seed)),
    "dense_rows_400000": ("dense rows", lambda seed: dense_rows(400_000, 4, 12, seed)),
    "co_occurrence_60000": ("co-occurrence", lambda seed: co_occurrence(60_000, 30_000, 40, seed)),
    "web_500000": ("web", lambda seed: web(500_000, 8, seed)),
    "pruned_4096": ("pruned", lambda seed: pruned(4096, 1024, 0.7, seed)),
}
"""Name -> matrix class and maker."""
SEEDS = (1, 2)

IRREGULAR: dict[str, tuple[str, Callable[[], Pattern]]] = {
    f"{name}_seed{seed}": (matrix_class, partial(make, seed))
    for name, (matrix_class, make) in KINDS.items()
    for seed in SEEDS
}
"""As `generated.GENERATED`, two of each kind."""

IRREGULAR_NNZ: dict[str, int] = {
    "neighbours_250000_seed1": 2_876_920,
    "neighbours_250000_seed2": 2_876_916,
    "wide_20000_seed1": 2_559_925,
    "wide_20000_seed2": 2_559_913,
    "tall_2000000_seed1": 2_559_925,
    "tall_2000000_seed2": 2_559_913,
    "dense_rows_400000_seed1": 2_503_335,
    "dense_rows_400000_seed2": 2_503_462,
    "co_occurrence_60000_seed1": 2_087_886,
    "co_occurrence_60000_seed2": 2_111_338,
    "web_500000_seed1": 2_773_532,
    "web_500000_seed2": 2_804_801,
    "pruned_4096_seed1": 1_258_920,
    "pruned_4096_seed2": 1_259_116,
}
"""What the makers give, known before they have run."""
