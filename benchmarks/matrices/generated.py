"""Large matrices made here, where no collection's licence or size stands in the way. Deterministic."""

from collections.abc import Callable

import numpy as np
import scipy.sparse

from benchmarks.matrices.irregular import IRREGULAR, IRREGULAR_NNZ
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy


def stencil_2d(side: int, points: int) -> Pattern:
    """5- or 9-point stencil on a side x side grid, natural order."""
    line = _neighbours(side)
    if points == 5:
        return pattern_from_scipy(_kron_sum(line, scipy.sparse.identity(side)))
    return pattern_from_scipy(scipy.sparse.kron(line, line, format="csr"))


def stencil_3d(side: int, points: int) -> Pattern:
    """7- or 27-point stencil on a cube, natural order."""
    line, one = _neighbours(side), scipy.sparse.identity(side)
    if points == 7:
        plane = _kron_sum(line, one)
        return pattern_from_scipy(
            scipy.sparse.kron(plane, one) + scipy.sparse.kron(scipy.sparse.identity(side * side), line)
        )
    return pattern_from_scipy(scipy.sparse.kron(scipy.sparse.kron(line, line), line, format="csr"))


def fem_blocks(side: int, unknowns: int) -> Pattern:
    """Linear elasticity on a triangulated square: `unknowns` a node, dense node blocks, patches in random order."""
    line = _neighbours(side)
    diagonal = scipy.sparse.diags([1], [1], shape=(side, side), dtype=np.float64)
    triangles = _kron_sum(line, scipy.sparse.identity(side)) + scipy.sparse.kron(diagonal, diagonal)
    nodes = scipy.sparse.csr_matrix(triangles + triangles.T)
    patches = np.arange(side * side) // 512
    order = np.argsort(np.random.default_rng(3).permutation(patches.max() + 1)[patches], kind="stable")
    nodes = nodes[order][:, order]
    return pattern_from_scipy(scipy.sparse.kron(nodes, np.ones((unknowns, unknowns)), format="csr"))


def power_law(num_rows: int, mean: int) -> Pattern:
    """Scale-free graph: row lengths and column popularity both follow a power law."""
    rng = np.random.default_rng(5)
    lengths = np.minimum(rng.pareto(1.5, num_rows) * mean / 2 + 1, num_rows // 4).astype(np.int64)
    rows = np.repeat(np.arange(num_rows), lengths)
    hubs = rng.permutation(num_rows)
    cols = hubs[np.minimum(rng.pareto(1.1, rows.size) * num_rows / 500, num_rows - 1).astype(np.int64)]
    return pattern_from_scipy(
        scipy.sparse.coo_matrix((np.ones(rows.size, np.int8), (rows, cols)), shape=(num_rows, num_rows))
    )


def uniform_rows(num_rows: int, length: int) -> Pattern:
    """Random columns, equal row lengths: the worst case for the cache."""
    cols = np.random.default_rng(7).integers(0, num_rows, num_rows * length)
    offsets = np.arange(0, cols.size + 1, length)
    return pattern_from_scipy(
        scipy.sparse.csr_matrix((np.ones(cols.size, np.int8), cols, offsets), shape=(num_rows, num_rows))
    )


def banded(num_rows: int, half_width: int) -> Pattern:
    """A full band."""
    offsets = list(range(-half_width, half_width + 1))
    ones = [np.ones(1)] * len(offsets)
    return pattern_from_scipy(
        scipy.sparse.diags(ones, offsets, shape=(num_rows, num_rows), format="csr", dtype=np.float64)
    )


GENERATED: dict[str, tuple[str, Callable[[], Pattern]]] = {
    "stencil2d5_1000": ("stencil", lambda: stencil_2d(1000, 5)),
    "stencil2d9_1400": ("stencil", lambda: stencil_2d(1400, 9)),
    "stencil3d7_128": ("stencil", lambda: stencil_3d(128, 7)),
    "stencil3d27_90": ("stencil", lambda: stencil_3d(90, 27)),
    "fem2_600": ("FEM", lambda: fem_blocks(600, 2)),
    "fem3_500": ("FEM", lambda: fem_blocks(500, 3)),
    "banded_1000000_8": ("banded", lambda: banded(1_000_000, 8)),
    "power_law_1000000": ("power law", lambda: power_law(1_000_000, 10)),
    "uniform_1000000_16": ("uniform", lambda: uniform_rows(1_000_000, 16)),
    **IRREGULAR,
}
"""Name -> matrix class and maker. 5e6 to 2e7 nonzeros each; of the irregular ones 1e6 to 3e6."""

GENERATED_NNZ: dict[str, int] = {
    "stencil2d5_1000": 4_996_000,
    "stencil2d9_1400": 17_623_204,
    "stencil3d7_128": 14_581_760,
    "stencil3d27_90": 19_248_832,
    "fem2_600": 10_060_808,
    "fem3_500": 15_714_018,
    "banded_1000000_8": 16_999_928,
    "power_law_1000000": 9_980_837,
    "uniform_1000000_16": 15_999_886,
    **IRREGULAR_NNZ,
}
"""What the makers give, known before they have run."""


def _neighbours(side: int) -> scipy.sparse.dia_matrix:
    return scipy.sparse.diags([1, 1, 1], [-1, 0, 1], shape=(side, side), dtype=np.float64)


def _kron_sum(a: scipy.sparse.spmatrix, b: scipy.sparse.spmatrix) -> scipy.sparse.csr_matrix:
    return scipy.sparse.csr_matrix(scipy.sparse.kron(a, b) + scipy.sparse.kron(b, a))
