"""Column panels: nonzeros grouped by the panel of x that they read, products handed on to bins of rows.

Propagation blocking (Beamer, Asanovic, Patterson, "Reducing Pagerank Communication via Propagation Blocking", IPDPS17;
Buono et al., "Optimizing sparse matrix-vector multiplication for large-scale data analytics", ICS16): a first launch
multiplies panel by panel, with the panel's x in shared memory, and writes every product to scratch; a second adds up
the products of one bin of rows at a time. All of it streams: no read of x reaches beyond a multiprocessor at random.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.format import (
    Argument,
    Format,
    IntegerRange,
    Layout,
    OneOf,
    Parameters,
    ParameterSpec,
    pattern_of_slots,
    refuse_overflow,
    refuse_padding,
    whole,
)
from sparsesmith.matrix.pattern import Int32Array, Pattern

IntArray = npt.NDArray[np.int64]

ALIGNMENT_SLOTS = 4
"""Segments begin at multiples: vector loads of columns, values and positions."""

PART_SLOTS = 32
"""Parts are whole multiples, the last of a panel aside."""

_NONZEROS_AT_A_TIME = 1 << 16
"""Temporary arrays of this size stay in a core's cache."""

_ARGUMENTS = (
    Argument("int", "num_panels", "size", "panels of panel_cols columns"),
    Argument("int", "num_parts", "size", "parts of a round, some empty at its end"),
    Argument("int", "num_bins", "size", "bins of a round"),
    Argument("int", "bin_nnz", "size", "nonzeros of a bin: bin b holds nonzeros b * bin_nnz to (b + 1) * bin_nnz"),
    Argument("int", "bin_slots", "size", "most slots that any bin has, padding included"),
    Argument("const int*", "part_panels", "index", "panel of each part, length rounds * num_parts"),
    Argument("const int*", "part_offsets", "index", "first slot of each part, length rounds * num_parts + 1"),
    Argument(
        "const int*",
        "segment_offsets",
        "index",
        "first slot of round r, the round's bin b and panel p at (r * (num_bins + 1) + b) * num_panels + p, their end "
        "num_panels entries further on; length rounds * (num_bins + 1) * num_panels",
    ),
    Argument(
        "const int*",
        "bin_rows",
        "index",
        "first row and one past the last row of each bin, length 2 * rounds * num_bins; the first and the last row may "
        "be cut; equal for a bin without nonzeros",
    ),
    Argument(
        "const int*",
        "cut_rows",
        "index",
        "for each bin the row that begins in it and goes on in the next, -1 for none, length rounds * num_bins",
    ),
    Argument("const int*", "row_offsets", "index", "first nonzero of each row, length num_rows + 1"),
    Argument("const unsigned short*", "col_indices", "index", "column of each slot within its panel"),
    Argument(
        "const unsigned short*",
        "positions",
        "index",
        "nonzero of each slot in CSR order, counted from the bin's first; padding has those after the bin's last",
    ),
    Argument("const T*", "values", "values", "value of each slot, zero for padding"),
    Argument("T*", "products", "scratch", "garbage at the start; length: most slots that a round has"),
)


@dataclass(frozen=True)
class Panels(Format):
    name: str = "panels"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {
            "panel_cols": IntegerRange(16384, 32, 65536),
            "parts": IntegerRange(264, 1, 16384),
            "bins": IntegerRange(792, 1, 16384),
            "rounds": OneOf(1, (1, 2, 3, 4)),
        }

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        return _ARGUMENTS

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        grid = _grid(pattern, parameters)
        panels = np.empty(pattern.nnz, np.uint16)
        np.floor_divide(pattern.col_indices, grid.panel_cols, out=panels, casting="unsafe")
        counts = _segment_counts(panels, grid)
        padded = -(-counts // ALIGNMENT_SLOTS) * ALIGNMENT_SLOTS
        offsets = np.concatenate([[0], np.cumsum(padded)])
        num_slots = int(offsets[-1])
        refuse_padding("panels", num_slots, pattern.nnz)
        sources, columns = np.full(num_slots, -1, np.int32), np.zeros(num_slots, np.uint16)
        positions, bin_slots = _padding_positions(grid, counts, padded, offsets)
        for slots, nonzeros in _placed(panels, grid, counts, offsets):
            sources[slots] = nonzeros
            own = pattern.col_indices.take(nonzeros)
            columns[slots] = own - own // grid.panel_cols * grid.panel_cols
            positions[slots] = nonzeros - nonzeros // grid.bin_nnz * grid.bin_nnz
        part_panels, part_offsets, num_parts = _parts(grid, offsets, whole(parameters, "parts"))
        bin_rows, cut_rows = _bins(pattern, grid)
        round_offsets = offsets[:: grid.num_panels * grid.num_bins]
        return Layout(
            sizes={
                "num_panels": grid.num_panels,
                "num_parts": num_parts,
                "num_bins": grid.num_bins,
                "bin_nnz": grid.bin_nnz,
                "bin_slots": bin_slots,
            },
            indices={
                "part_panels": part_panels,
                "part_offsets": part_offsets,
                "segment_offsets": _by_bin(grid, offsets),
                "bin_rows": bin_rows,
                "cut_rows": cut_rows,
                "row_offsets": pattern.row_offsets,
                "col_indices": columns,
                "positions": positions,
            },
            value_sources=sources,
            num_slots=num_slots,
            scratch={"products": int(np.diff(round_offsets).max())},
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        sizes, indices = layout.sizes, layout.indices
        entries = indices["segment_offsets"].reshape(-1, sizes["num_bins"] + 1, sizes["num_panels"])
        lengths = np.diff(entries.transpose(0, 2, 1), axis=2).reshape(-1)
        segments = np.repeat(np.arange(lengths.size), lengths)
        panels = segments // sizes["num_bins"] % sizes["num_panels"]
        rounds = segments // (sizes["num_bins"] * sizes["num_panels"])
        bins = rounds * sizes["num_bins"] + segments % sizes["num_bins"]
        nonzeros = bins * sizes["bin_nnz"] + indices["positions"]
        rows = np.searchsorted(indices["row_offsets"], nonzeros, side="right") - 1
        columns = panels * whole(parameters, "panel_cols") + indices["col_indices"]
        return pattern_of_slots(num_rows, num_cols, rows, columns, layout)


@dataclass(frozen=True)
class _Grid:
    """Segments: rounds x panels x bins of a round, in storage order."""

    panel_cols: int
    num_rounds: int
    num_panels: int
    num_bins: int
    bin_nnz: int

    @property
    def num_segments(self) -> int:
        return self.num_rounds * self.num_panels * self.num_bins


def _grid(pattern: Pattern, parameters: Parameters) -> _Grid:
    panel_cols, bins = whole(parameters, "panel_cols"), whole(parameters, "bins")
    rounds = whole(parameters, "rounds")
    num_panels = -(-pattern.num_cols // panel_cols)
    bin_nnz = -(-pattern.nnz // (bins * rounds))
    refuse_overflow("panels", "nnz + rounds * bins", pattern.nnz + bins * rounds)
    grid = _Grid(panel_cols, rounds, num_panels, bins, bin_nnz)
    limit = 2**20 + pattern.nnz
    if grid.num_segments > limit or rounds * num_panels > 2**16:
        raise InvalidProgram(
            f"format panels would cut {pattern.nnz} nonzeros into {grid.num_segments} segments of "
            f"{num_panels} panels (at most {limit}, of {2**16 // rounds} panels)",
            field="panel_cols",
            value=panel_cols,
            limit=limit,
        )
    return grid


def _segment_counts(panels: npt.NDArray[np.uint16], grid: _Grid) -> IntArray:
    """Nonzeros of each segment, from the panel of each nonzero."""
    of_bins = np.zeros((grid.num_rounds * grid.num_bins, grid.num_panels), np.int64)
    bins_at_a_time = max(1, _NONZEROS_AT_A_TIME // max(grid.bin_nnz, grid.num_panels))
    for first in range(0, -(-panels.size // grid.bin_nnz), bins_at_a_time):
        piece = panels[first * grid.bin_nnz : (first + bins_at_a_time) * grid.bin_nnz]
        counts = of_bins[first : first + bins_at_a_time]
        keys = np.arange(piece.size) // grid.bin_nnz * grid.num_panels + piece
        counts[:] = np.bincount(keys, minlength=counts.size).reshape(counts.shape)
    by_round = of_bins.reshape(grid.num_rounds, grid.num_bins, grid.num_panels)
    return np.ascontiguousarray(by_round.transpose(0, 2, 1)).reshape(-1)


def _placed(
    panels: npt.NDArray[np.uint16], grid: _Grid, counts: IntArray, offsets: IntArray
) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Slots and nonzeros in storage order, by round, panel and bin, a piece at a time. CSR order is ordered by bin."""
    round_nnz = grid.num_bins * grid.bin_nnz
    # A segment's padding moves all behind it.
    moves = (offsets[:-1] - (np.cumsum(counts) - counts)).astype(np.int32).reshape(grid.num_rounds, -1)
    for number, in_round in enumerate(counts.reshape(moves.shape)):
        start = number * round_nnz
        order = np.argsort(panels[start : start + round_nnz], kind="stable")
        moved = np.repeat(moves[number], in_round)
        for first in range(0, order.size, _NONZEROS_AT_A_TIME):
            piece = slice(first, first + _NONZEROS_AT_A_TIME)
            nonzeros = order[piece] + start
            yield np.arange(start + first, start + first + nonzeros.size) + moved[piece], nonzeros


def _by_bin(grid: _Grid, offsets: IntArray) -> Int32Array:
    """First slot of each segment by round, bin and panel, after the last bin the end of each panel."""
    shape = (grid.num_rounds, grid.num_panels, grid.num_bins)
    firsts, ends = offsets[:-1].reshape(shape), offsets[1:].reshape(shape)[:, :, -1:]
    entries: Int32Array = np.concatenate([firsts, ends], axis=2).astype(np.int32)
    return np.ascontiguousarray(entries.transpose(0, 2, 1)).reshape(-1)


def _padding_positions(
    grid: _Grid, counts: IntArray, padded: IntArray, offsets: IntArray
) -> tuple[npt.NDArray[np.uint16], int]:
    """The position of each slot in its bin, those of nonzeros to be filled in, and the most slots of a bin.

    Raises InvalidProgram beyond 16 bits.
    """
    shape = (grid.num_rounds, grid.num_panels, grid.num_bins)
    bin_slots = int(padded.reshape(shape).sum(axis=1).max())
    if bin_slots > 2**16:
        raise InvalidProgram(
            f"format panels: positions are 16 bits wide, {grid.num_bins} bins need {bin_slots} (at most {2**16})",
            field="bins",
            value=bin_slots,
            limit=2**16,
        )
    pads = (padded - counts).reshape(shape)
    first_pads = (counts.reshape(shape).sum(axis=1, keepdims=True) + np.cumsum(pads, axis=1) - pads).reshape(-1)
    pads = padded - counts
    within = np.arange(int(pads.sum())) - np.repeat(np.cumsum(pads) - pads, pads)
    positions = np.empty(int(offsets[-1]), np.uint16)
    positions[np.repeat(offsets[:-1] + counts, pads) + within] = np.repeat(first_pads, pads) + within
    return positions, bin_slots


def _parts(grid: _Grid, offsets: IntArray, parts: int) -> tuple[Int32Array, Int32Array, int]:
    """Panel and first slot of each part, parts of a round: as many as asked for, or one for each panel in use."""
    panel_starts = offsets[:: grid.num_bins].astype(np.int64)
    sizes = np.diff(panel_starts).reshape(grid.num_rounds, grid.num_panels)
    cuts = [_cut(row, parts) for row in sizes]
    num_parts = max(int(cut.sum()) for cut, _ in cuts)
    panels = np.zeros((grid.num_rounds, num_parts), np.int32)
    starts = np.empty((grid.num_rounds, num_parts), np.int64)
    for number, (cut, part_slots) in enumerate(cuts):
        used = int(cut.sum())
        first = number * grid.num_panels
        panels[number, :used] = np.repeat(np.arange(grid.num_panels), cut)
        within = np.arange(used) - np.repeat(np.cumsum(cut) - cut, cut)
        starts[number, :used] = np.repeat(panel_starts[first : first + grid.num_panels], cut) + within * part_slots
        starts[number, used:] = panel_starts[first + grid.num_panels]
    return panels.reshape(-1), np.append(starts.reshape(-1), offsets[-1]).astype(np.int32), num_parts


def _cut(panel_slots: IntArray, parts: int) -> tuple[IntArray, int]:
    """Parts of each panel and the slots of a part: the smallest that needs no more parts than that."""
    low, high = 1, max(1, -(-int(panel_slots.max()) // PART_SLOTS))
    while low < high:
        middle = (low + high) // 2
        if int((-(-panel_slots // (middle * PART_SLOTS))).sum()) <= parts:
            high = middle
        else:
            low = middle + 1
    return -(-panel_slots // (low * PART_SLOTS)), low * PART_SLOTS


def _bins(pattern: Pattern, grid: _Grid) -> tuple[Int32Array, Int32Array]:
    """First row and end row of each bin, interleaved; the row that begins in each bin and goes on, or -1.

    Empty rows belong to the bin that holds the nonzero before them, those at the start to the first bin.
    """
    num_bins = grid.num_rounds * grid.num_bins
    starts = np.minimum(np.arange(num_bins + 1) * grid.bin_nnz, pattern.nnz)
    rows = pattern.rows_of(starts)
    rows[0] = 0
    is_cut = pattern.row_offsets[rows] < starts
    ends = rows[1:] + is_cut[1:]
    begins_here = is_cut[1:] & (pattern.row_offsets[rows[1:]] >= starts[:-1])
    cut_rows = np.where(begins_here, rows[1:], -1)
    return np.stack([rows[:-1], ends], axis=1).reshape(-1).astype(np.int32), cut_rows.astype(np.int32)
