"""CSR in blocks of consecutive rows, each with a list of its distinct columns: what the rows of a block share of the
dense operand is read once, and column indices are places in a short list. Rows may be in an order in which neighbours
share more of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.building.numbering import NATURAL, ROWS, ROWS_BY_BREADTH, numbered_by
from sparsesmith.formats.csr import ROW_OFFSETS, VALUES_IN_CSR_ORDER
from sparsesmith.formats.csr_rowblocks import partition
from sparsesmith.formats.format import (
    Argument,
    Format,
    IntegerRange,
    Layout,
    Parameters,
    ParameterSpec,
    whole,
)
from sparsesmith.matrix.pattern import Int32Array, Pattern, pattern_from_indices

_NONZEROS_AT_A_TIME = 1 << 20
"""Bounds the memory of the search for distinct columns."""

_ARGUMENTS = (
    Argument("int", "num_blocks", "size", "row blocks"),
    Argument("int", "max_block_cols", "size", "distinct columns of the block that has most"),
    Argument(
        "const int*",
        "block_rows",
        "index",
        "first row of each block, length num_blocks + 1, ending in num_rows; a block holds at most nnz_per_block "
        "nonzeros and max_rows rows",
    ),
    Argument(
        "const int*", "block_col_offsets", "index", "where the columns of each block begin, length num_blocks + 1"
    ),
    Argument(
        "const int*",
        "block_cols",
        "index",
        "distinct columns of block t from block_col_offsets[t] to block_col_offsets[t + 1], ascending",
    ),
    ROW_OFFSETS,
    Argument(
        "const unsigned short*",
        "col_indices",
        "index",
        "place of each nonzero's column among its block's, in CSR order, length nnz",
    ),
    VALUES_IN_CSR_ORDER,
)
_ROW_IDS = Argument("const int*", "row_ids", "index", "the row of A that each stored row is, length num_rows")
"""Where rows are moved, all other arguments speak of stored rows and their order."""


@dataclass(frozen=True)
class CsrDistinct(Format):
    name: str = "csr_distinct"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {
            "nnz_per_block": IntegerRange(1024, 64, 16384),
            "max_rows": IntegerRange(64, 1, 4096),
            "rows": ROWS,
        }

    @property
    def has_padding(self) -> bool:
        return False

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        sizes, arrays = _ARGUMENTS[:2], _ARGUMENTS[2:]
        return _ARGUMENTS if parameters["rows"] == NATURAL else (*sizes, _ROW_IDS, *arrays)

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        if parameters["rows"] == NATURAL:
            return self._build(pattern, parameters)
        numbered, saved_ms = numbered_by(pattern, ROWS_BY_BREADTH)
        layout = self._build(numbered.pattern, parameters)
        indices = {**layout.indices, _ROW_IDS.name: numbered.rows}
        return replace(layout, indices=indices, value_sources=numbered.sources, saved_ms=saved_ms)

    def _build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        """As the rows are stored."""
        capacity, longest = whole(parameters, "nnz_per_block"), int(pattern.row_lengths.max())
        if longest > capacity:
            raise InvalidProgram(
                f"format csr_distinct: a row has {longest} nonzeros, a block at most {capacity}",
                field="nnz_per_block",
                value=longest,
                limit=capacity,
            )
        block_rows = partition(pattern.row_offsets, capacity, whole(parameters, "max_rows"))
        counts, columns, places = _distinct(pattern, block_rows)
        offsets = np.zeros(counts.size + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        return Layout(
            sizes={"num_blocks": counts.size, "max_block_cols": int(counts.max())},
            indices={
                "block_rows": block_rows,
                "block_col_offsets": offsets,
                "block_cols": columns,
                "row_offsets": pattern.row_offsets,
                "col_indices": places,
            },
            value_sources=None,
            num_slots=pattern.nnz,
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        row_offsets = layout.indices["row_offsets"].astype(np.int32, copy=False)
        firsts = layout.indices["block_col_offsets"].astype(np.int32, copy=False)[:-1]
        of_blocks = np.diff(row_offsets[layout.indices["block_rows"].astype(np.int32)])
        places = layout.indices["col_indices"].astype(np.int32) + np.repeat(firsts, of_blocks)
        stored = Pattern(num_rows, num_cols, row_offsets, layout.indices["block_cols"].astype(np.int32)[places])
        if parameters["rows"] == NATURAL:
            return stored
        rows = layout.indices[_ROW_IDS.name].astype(np.int32)[stored.row_indices()]
        return pattern_from_indices(num_rows, num_cols, rows, stored.col_indices)


def _distinct(
    pattern: Pattern, block_rows: Int32Array
) -> tuple[npt.NDArray[np.int64], Int32Array, npt.NDArray[np.uint16]]:
    """Distinct columns of each block counted and listed, and each nonzero's place among its block's."""
    bounds = pattern.row_offsets[block_rows].astype(np.int64)
    counts = np.zeros(block_rows.size - 1, np.int64)
    places = np.empty(pattern.nnz, np.uint16)
    listed = []
    for first, end in _runs(bounds):
        begin, stop = bounds[first], bounds[end]
        blocks = np.repeat(np.arange(end - first), np.diff(bounds[first : end + 1]))
        keys, inverse = np.unique(blocks * pattern.num_cols + pattern.col_indices[begin:stop], return_inverse=True)
        counts[first:end] = np.bincount(keys // pattern.num_cols, minlength=end - first)
        before = np.cumsum(counts[first:end]) - counts[first:end]
        places[begin:stop] = inverse - before[blocks]
        listed.append((keys % pattern.num_cols).astype(np.int32))
    return counts, np.concatenate(listed), places


def _runs(bounds: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Blocks from one up to another of about as many nonzeros as are looked at together."""
    cuts = np.searchsorted(bounds, np.arange(0, bounds[-1], _NONZEROS_AT_A_TIME), "left")
    cuts = np.unique(np.append(cuts, bounds.size - 1))
    return [(int(first), int(end)) for first, end in pairwise(cuts)]
