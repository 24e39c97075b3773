"""What a pattern looks like, for people: a card of numbers, and how dense each part of it is."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.errors import InvalidOption
from sparsesmith.matrix.features import BLOCK_EXTENTS, block_fill, pattern_symmetry
from sparsesmith.matrix.pattern import Pattern
from sparsesmith_proto.api import BlockFill, Density, MatrixCard, RowLengths

MAX_GRID = 512
"""Boxes of a grid in each direction."""
PIECE_NNZ = 1 << 20
"""Nonzeros that are looked at in one go: bounds memory, and how long other threads wait."""


@dataclass(frozen=True)
class Window:
    """Rows and columns of a matrix, each from the first to one before the end."""

    first_row: int
    end_row: int
    first_col: int
    end_col: int

    @classmethod
    def of(cls, pattern: Pattern, first_row: int, end_row: int | None, first_col: int, end_col: int | None) -> "Window":
        """None: to the last one. Raises InvalidOption for a window that does not lie within the matrix."""
        end_row = pattern.num_rows if end_row is None else end_row
        end_col = pattern.num_cols if end_col is None else end_col
        _check_range("row", first_row, end_row, pattern.num_rows)
        _check_range("col", first_col, end_col, pattern.num_cols)
        return cls(first_row, end_row, first_col, end_col)


def matrix_card(pattern: Pattern) -> MatrixCard:
    """Counts of rows and bandwidths are exact, the rest as `features` samples it."""
    lengths = pattern.row_lengths
    lower, upper = bandwidths(pattern)
    return MatrixCard(
        pattern=pattern.digest,
        num_rows=pattern.num_rows,
        num_cols=pattern.num_cols,
        nnz=pattern.nnz,
        row_lengths=row_length_histogram(lengths),
        shortest_row=int(lengths.min()),
        mean_row=pattern.nnz / pattern.num_rows,
        longest_row=int(lengths.max()),
        lower_bandwidth=lower,
        upper_bandwidth=upper,
        symmetry=pattern_symmetry(pattern),
        blocks=tuple(
            BlockFill(extent=extent, share=block_fill(pattern, extent, extent))
            for extent in BLOCK_EXTENTS
            if extent <= min(pattern.num_rows, pattern.num_cols)
        ),
    )


def row_length_histogram(lengths: npt.NDArray[np.int32]) -> tuple[RowLengths, ...]:
    """Rows of 0, 1, 2, 3 to 4, 5 to 8, ... nonzeros, up to the longest row."""
    bins = np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64) + (lengths > 0)
    counts = np.bincount(bins)
    return tuple(
        RowLengths(shortest=_shortest(number), longest=_longest(number), num_rows=int(count))
        for number, count in enumerate(counts)
    )


def bandwidths(pattern: Pattern) -> tuple[int, int]:
    """Largest distance of a nonzero from the diagonal below it and above it."""
    first, last = pattern.row_spans
    filled = np.flatnonzero(last >= 0)
    return max(0, int((filled - first[filled]).max())), max(0, int((last[filled] - filled).max()))


def density(pattern: Pattern, window: Window, most_boxes: int = MAX_GRID) -> Density:
    """Nonzeros in each box of a grid of at most `most_boxes` x `most_boxes` over the window.

    Looks at each nonzero of the window's rows once, in pieces of bounded size.
    """
    num_rows, num_cols = window.end_row - window.first_row, window.end_col - window.first_col
    grid_rows, grid_cols = min(most_boxes, num_rows), min(most_boxes, num_cols)
    # Rows of a box follow each other, so its nonzeros do: from places[box] to places[box + 1].
    edges = window.first_row + -(-np.arange(grid_rows + 1, dtype=np.int64) * num_rows // grid_rows)
    places = pattern.row_offsets[edges]
    counts = np.zeros((grid_rows, grid_cols), np.int64)
    for box in range(grid_rows):
        for begin in range(int(places[box]), int(places[box + 1]), PIECE_NNZ):
            columns = pattern.col_indices[begin : min(begin + PIECE_NNZ, int(places[box + 1]))]
            counts[box] += _boxes(columns, window, grid_cols)
    return Density(
        first_row=window.first_row,
        end_row=window.end_row,
        first_col=window.first_col,
        end_col=window.end_col,
        grid_rows=grid_rows,
        grid_cols=grid_cols,
        counts=tuple(counts.ravel().tolist()),
    )


def _boxes(columns: npt.NDArray[np.int32], window: Window, grid_cols: int) -> npt.NDArray[np.int64]:
    """Nonzeros in each box of one row of the grid, shape [grid_cols]."""
    num_cols = window.end_col - window.first_col
    shifted = columns.astype(np.int64) - window.first_col
    inside = shifted[(shifted >= 0) & (shifted < num_cols)]
    return np.bincount(inside * grid_cols // num_cols, minlength=grid_cols)


def _check_range(axis: str, first: int, end: int, extent: int) -> None:
    if not 0 <= first < end <= extent:
        limit = f"0 <= first_{axis} < end_{axis} <= {extent}"
        raise InvalidOption(
            f"first_{axis} is {first} and end_{axis} is {end}: must be {limit}",
            field=f"first_{axis}",
            value=f"{first}:{end}",
            limit=limit,
        )


def _shortest(number: int) -> int:
    """Of a bin of the histogram."""
    return number if number < 3 else 2 ** (number - 2) + 1


def _longest(number: int) -> int:
    return number if number < 3 else 2 ** (number - 1)
