"""Linear programmes made by formula, with fixed seeds: min c x, A x = b, x >= 0, each with a solution that is known.

Their size follows from the nonzeros that are wanted, roughly.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """min c x, A x = b, x >= 0."""

    name: str
    matrix: scipy.sparse.csr_matrix
    b: Vector
    c: Vector


def quadratic_assignment(nnz: float) -> scipy.sparse.csr_matrix:
    """The linearisation of a quadratic assignment problem (Adams and Johnson 1994) as it is made of the NUG instances:
    x_ij assigns i to j; y_ijkm = x_ij x_km for i != k, j != m. Rows: each i and j once; sums of y over j and over i
    are x_km; y_ijkm = y_kmij."""
    size = max(3, round((nnz / 4) ** 0.25 + 1))
    i, j, k, m = (axis.reshape(-1) for axis in np.indices((size,) * 4, dtype=np.int32))
    is_pair = (i != k) & (j != m)
    i, j, k, m = i[is_pair], j[is_pair], k[is_pair], m[is_pair]
    pairs, count = size * size, i.size
    number = np.full(size**4, -1, np.int64)
    number[is_pair] = np.arange(count)
    y = pairs + np.arange(count)
    x = np.arange(pairs)
    assigned = (np.concatenate([x // size, size + x % size]), np.tile(x, 2), np.ones(2 * pairs))
    by_row = _sums_are_x(i * pairs + k * size + m, k * size + m, y)
    by_col = _sums_are_x(j * pairs + k * size + m, k * size + m, y)
    turned = number[((k * size + m).astype(np.int64) * size + i) * size + j]
    first = np.flatnonzero(turned > np.arange(count))
    rows = np.arange(first.size)
    same = (np.tile(rows, 2), np.concatenate([y[first], pairs + turned[first]]), np.repeat([1.0, -1.0], first.size))
    return _stacked([assigned, by_row, by_col, same], pairs + count)


def set_cover(nnz: float) -> scipy.sparse.csr_matrix:
    """Sets of 2 to 40 elements, few of them large; a surplus for each element."""
    rng = np.random.default_rng(11)
    sizes = np.minimum(2 + rng.pareto(1.6, max(4, int(nnz / 5))) * 2, 40).astype(np.int64)
    elements = max(4, sizes.size // 4)
    cols = np.repeat(np.arange(sizes.size), sizes)
    rows = rng.integers(0, elements, cols.size)
    cover = scipy.sparse.csr_matrix((np.ones(cols.size), (rows, cols)), shape=(elements, sizes.size))
    cover.data[:] = 1
    return scipy.sparse.csr_matrix(scipy.sparse.hstack([cover, -scipy.sparse.identity(elements)]))


def transport(nnz: float) -> scipy.sparse.csr_matrix:
    """What goes from each of m sources to each of 4 m sinks: two ones a column."""
    sources = max(2, int((nnz / 8) ** 0.5))
    sinks = 4 * sources
    flows = np.arange(sources * sinks)
    rows = np.concatenate([flows // sinks, sources + flows % sinks])
    return scipy.sparse.csr_matrix((np.ones(2 * flows.size), (rows, np.tile(flows, 2))), (sources + sinks, flows.size))


def least_deviations(nnz: float) -> scipy.sparse.csr_matrix:
    """An L1 fit of samples by features of which 12 are seen each time, some often: F (p - q) + u - v = b."""
    rng = np.random.default_rng(13)
    seen, samples = 12, max(4, int(nnz / 26))
    features = max(seen, samples // 8)
    popular = np.minimum(rng.pareto(1.2, samples * seen) * features / 50, features - 1).astype(np.int64)
    rows = np.repeat(np.arange(samples), seen)
    fit = scipy.sparse.csr_matrix((rng.standard_normal(rows.size), (rows, popular)), shape=(samples, features))
    one = scipy.sparse.identity(samples)
    return scipy.sparse.csr_matrix(scipy.sparse.hstack([fit, -fit, one, -one]))


KINDS: dict[str, Callable[[float], scipy.sparse.csr_matrix]] = {
    "qap": quadratic_assignment,
    "set_cover": set_cover,
    "transport": transport,
    "l1_fit": least_deviations,
}


def linear_program(kind: str, nnz: float) -> LinearProgram:
    """With b = A x for a sparse x >= 0, and c >= 0 that vanishes where x does not: x is a solution."""
    matrix = KINDS[kind](nnz)
    matrix.sum_duplicates()
    matrix.sort_indices()
    rng = np.random.default_rng(17)
    solution = rng.uniform(0, 1, matrix.shape[1]) * (rng.uniform(0, 1, matrix.shape[1]) < 0.2)
    c = rng.uniform(0, 1, matrix.shape[1]) * (solution == 0)
    return LinearProgram(f"{kind}-{nnz:.0e}".replace("+0", ""), matrix, matrix @ solution, c)


Entries = tuple[npt.NDArray[np.integer], npt.NDArray[np.integer], Vector]
"""Rows from 0 on, columns, values."""


def _sums_are_x(row: npt.NDArray[np.integer], x: npt.NDArray[np.integer], y: npt.NDArray[np.integer]) -> Entries:
    """One row for each number in `row`: the sum of its y is one x."""
    used, rows = np.unique(row, return_inverse=True)
    first = np.zeros(used.size, np.int64)
    first[rows] = x
    return (
        np.concatenate([rows, np.arange(used.size)]),
        np.concatenate([y, first]),
        np.concatenate([np.ones(y.size), -np.ones(used.size)]),
    )


def _stacked(blocks: list[Entries], num_cols: int) -> scipy.sparse.csr_matrix:
    offset = 0
    parts: list[Entries] = []
    for rows, cols, values in blocks:
        parts.append((rows + offset, cols, values))
        offset += int(rows.max()) + 1
    rows, cols, values = (np.concatenate(each) for each in zip(*parts, strict=True))
    return scipy.sparse.csr_matrix((values, (rows, cols)), shape=(offset, num_cols))
