"""Rows and columns in another order than the user's, so that what is multiplied together lies close together.

A format stores the matrix by the numbers of this order; its kernels copy x into it first and write y where the user has
it, so that nobody outside sees another order than his own.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components

from sparsesmith.formats.format import Argument, Layout, OneOf, ParameterValue, refuse_overflow
from sparsesmith.matrix.pattern import Int32Array, Pattern

Numbering = Literal["breadth", "popular"]

NATURAL = "natural"
ROWS = OneOf(NATURAL, (NATURAL, "breadth"))
"""The parameter `rows` of formats whose columns stay as they are."""
ROWS_BY_BREADTH = "rows by breadth"
"""For `numbered_by`: rows as `breadth` numbers them, columns as they are."""

NUMBERINGS: tuple[Numbering, ...] = ("breadth", "popular")
NUMBERING = OneOf(NATURAL, (NATURAL, *NUMBERINGS))
"""The parameter `numbering`. `breadth`: rows and columns, each apart from the other, as a walk through the matrix in
breadth meets them. `popular`: columns by how many nonzeros they have, rows as they are."""
MOVES_ROWS: frozenset[ParameterValue] = frozenset({"breadth"})

COL_ORDER = Argument("const int*", "col_order", "index", "column of each place of the numbering, length num_cols")
ORDERED_X = Argument("T*", "ordered_x", "scratch", "garbage at the start; for x in the order of col_order, num_cols")


@dataclass(frozen=True, eq=False)
class Numbered:
    """A pattern by the numbers of another order."""

    pattern: Pattern
    rows: Int32Array
    """The user's row of each place, shape [num_rows]."""
    cols: Int32Array
    """The user's column of each place, shape [num_cols]."""
    sources: Int32Array
    """For each nonzero of this pattern its place among the user's, shape [nnz]."""
    taken_ms: float
    """Time of the thread that made it."""

    def with_users_rows(self, layout: Layout, rows: str, *, saved_ms: float) -> Layout:
        """A layout of this pattern with its values and the array `rows`, row numbers or -1, by the user's numbers.

        `saved_ms`: see `Layout.saved_ms`."""
        assert layout.value_sources is not None
        indices = {**layout.indices, rows: _or_none(self.rows, layout.indices[rows])}
        sources = _or_none(self.sources, layout.value_sources)
        return replace(layout, indices=indices, value_sources=sources, saved_ms=saved_ms)

    def with_ordered_x(self, layout: Layout) -> Layout:
        """With what kernels bring x into the order of the columns by."""
        indices = {**layout.indices, COL_ORDER.name: self.cols}
        return replace(layout, indices=indices, scratch={ORDERED_X.name: self.cols.size})


_KNOWN: WeakKeyDictionary[Pattern, dict[str, Numbered]] = WeakKeyDictionary()
"""Of patterns that are alive: a search builds many layouts of one."""
_LOCK = Lock()


def numbered_by(pattern: Pattern, numbering: ParameterValue) -> tuple[Numbered, float]:
    """The pattern in that order, and how many milliseconds of a thread were saved because it was there.

    Raises InvalidProgram where rows and columns together, or twice the nonzeros, are beyond 32 bits.
    """
    assert isinstance(numbering, str)
    with _LOCK:
        known = _KNOWN.setdefault(pattern, {})
        if numbering in known:
            return known[numbering], known[numbering].taken_ms
        known[numbering] = _numbered(pattern, _ORDERS[numbering])
        return known[numbering], 0.0


Orders = tuple[Int32Array, Int32Array]
"""The user's row, and column, of each place."""


def _numbered(pattern: Pattern, order: Callable[[Pattern], Orders]) -> Numbered:
    started = time.thread_time()
    rows, cols = order(pattern)
    moved = _moved(pattern, rows, cols)
    offsets, columns = (array.astype(np.int32, copy=False) for array in (moved.indptr, moved.indices))
    ordered = Pattern(pattern.num_rows, pattern.num_cols, offsets, columns)
    return Numbered(ordered, rows, cols, moved.data, (time.thread_time() - started) * 1e3)


def _moved(pattern: Pattern, rows: Int32Array, cols: Int32Array) -> scipy.sparse.csr_matrix:
    """The matrix in these orders, columns ascending; its values are the places of the nonzeros before."""
    places = np.empty_like(cols)
    places[cols] = np.arange(cols.size, dtype=np.int32)
    moved = scipy.sparse.csr_matrix(
        (np.arange(pattern.nnz, dtype=np.int32), places[pattern.col_indices], pattern.row_offsets),
        shape=(pattern.num_rows, pattern.num_cols),
    )[rows]
    moved.sort_indices()
    return moved


def _by_popularity(pattern: Pattern) -> Orders:
    """Columns with most nonzeros first, lower columns first among equals."""
    counts = np.bincount(pattern.col_indices, minlength=pattern.num_cols)
    return np.arange(pattern.num_rows, dtype=np.int32), np.argsort(-counts, kind="stable").astype(np.int32)


def _by_breadth(pattern: Pattern) -> Orders:
    """As Cuthill and McKee (1969), on the graph whose nodes are rows and columns and whose edges are nonzeros.

    Nodes are numbered by their nonzeros, the fewest first, rows before columns and lower before higher ones among
    equals. Of each component, in the order of their lowest nodes, a walk from the lowest ends at a node far out; from
    there a second walk, neighbours by their numbers, is the order.
    """
    num_rows, num_nodes = pattern.num_rows, pattern.num_rows + pattern.num_cols
    refuse_overflow("by breadth", "num_rows + num_cols", num_nodes + 1)
    refuse_overflow("by breadth", "2 * nnz + num_rows + num_cols", 2 * pattern.nnz + num_nodes)
    column_lengths = np.bincount(pattern.col_indices, minlength=pattern.num_cols)
    nodes = np.argsort(np.concatenate([pattern.row_lengths, column_lengths]), kind="stable").astype(np.int32)
    is_row = nodes < num_rows
    rows, cols = nodes[is_row], nodes[~is_row] - np.int32(num_rows)
    graph = _graph(pattern, rows, cols)
    by_number = np.empty_like(nodes)
    by_number[is_row] = np.arange(num_rows, dtype=np.int32)
    by_number[~is_row] = np.arange(num_rows, num_nodes, dtype=np.int32)
    components, lowest = _components(graph, by_number)
    walked = _walk(graph, lowest, components)
    order = _walk(graph, walked[np.flatnonzero(np.diff(components[walked], append=-1))], components)
    return rows[order[order < num_rows]], cols[order[order >= num_rows] - num_rows]


def _graph(pattern: Pattern, rows: Int32Array, cols: Int32Array) -> scipy.sparse.csr_matrix:
    """Nodes are the rows, then the columns, in these orders; edges both ways, neighbours ascending in theirs."""
    of_rows = _moved(pattern, rows, cols)
    of_cols = of_rows.tocsc()
    ends = np.concatenate([of_rows.indices + np.int32(rows.size), of_cols.indices])
    offsets = np.concatenate([of_rows.indptr, of_cols.indptr[1:] + np.int32(pattern.nnz)])
    return scipy.sparse.csr_matrix((np.ones(ends.size), ends, offsets), shape=(offsets.size - 1, offsets.size - 1))


def _components(graph: scipy.sparse.csr_matrix, by_number: Int32Array) -> tuple[Int32Array, Int32Array]:
    """The component of each node, and the lowest node of each, which are in its order. `by_number`: all nodes."""
    count, labels = connected_components(graph, connection="strong")  # Of edges both ways the same, and no transpose.
    lowest_place = np.empty(count, np.int32)
    lowest_place[labels[by_number[::-1]]] = np.arange(by_number.size - 1, -1, -1, dtype=np.int32)
    in_order = np.argsort(lowest_place)
    ranks = np.empty(count, np.int32)
    ranks[in_order] = np.arange(count, dtype=np.int32)
    return ranks[labels], by_number[lowest_place[in_order]]


def _walk(graph: scipy.sparse.csr_matrix, starts: Int32Array, components: Int32Array) -> Int32Array:
    """All nodes in breadth from one of each component, component by component: one walk from a node beside the graph
    that leads to all starts."""
    num_nodes, num_edges = graph.shape[0], graph.nnz + starts.size
    rooted = scipy.sparse.csr_matrix(
        (np.ones(num_edges), np.append(graph.indices, starts), np.append(graph.indptr, np.int32(num_edges))),
        shape=(num_nodes + 1, num_nodes + 1),
    )
    walked: Int32Array = breadth_first_order(rooted, num_nodes, return_predecessors=False)[1:]
    return walked[np.argsort(components[walked], kind="stable")]


def _or_none(numbers: Int32Array, places: npt.NDArray[np.generic]) -> Int32Array:
    """Of each place its number, -1 where there is none."""
    held = places.astype(np.int32, copy=False)
    return np.where(held < 0, np.int32(-1), np.take(numbers, np.maximum(held, 0)))


def _rows_by_breadth(pattern: Pattern) -> Orders:
    return _by_breadth(pattern)[0], np.arange(pattern.num_cols, dtype=np.int32)


_ORDERS: Mapping[str, Callable[[Pattern], Orders]] = {
    "breadth": _by_breadth,
    "popular": _by_popularity,
    ROWS_BY_BREADTH: _rows_by_breadth,
}
