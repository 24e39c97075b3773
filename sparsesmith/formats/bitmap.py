"""Bitmap: a bit an entry instead of columns, values in one stream for each lane and row; for half empty matrices.

Rows go in strips of 16, columns in chunks of four tiles of 16: a tile is the first operand of PTX's `mma.m16n8k16`.
Lane 4 * g + t has rows g and g + 8 of it and of them columns 4 * t to 4 * t + 3, 32 entries of a chunk in all, and one
word says which of them are stored. The values of a lane's row follow each other in a stream of its own: where the next
one lies is a matter of counting own bits, not those of other lanes, and each lane's lie in one bank of shared memory.

After SpInfer ("tensor-core-aware bitmap encoding", EuroSys 2025), whose lanes share a stream and count the bits of all
lanes before them: a population count an entry, of which an H100 issues an eighth of what it does of others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsesmith.formats.format import (
    Argument,
    Format,
    Layout,
    OneOf,
    Parameters,
    ParameterSpec,
    refuse_bookkeeping,
    refuse_overflow,
    refuse_padding,
    whole,
)
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices

IntArray = npt.NDArray[np.int64]

STRIP_ROWS = 16
CHUNK_COLS = 64
LINE = 64
"""Values of a line: one for each lane and each of its two rows."""
LINES_AT_ONCE = 4
"""Pieces have multiples of so many lines: what a warp copies by 16 bytes a lane, of 16-bit values."""
QUARTERS = 4
PART_COLS = OneOf(1024, (256, 512, 1024, 2048, 4096))
ENTRIES_AT_ONCE = 2**20
"""That are looked at as a dense matrix, so that they stay in the cache."""

_SPLIT = ("strip", "half", "group", "part", "chunk", "tile", "quad", "pair", "odd")
"""What the places of a dense matrix fall into: rows, then columns, from the highest on."""


@dataclass(frozen=True)
class Bitmap(Format):
    name: str = "bitmap"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {"part_cols": PART_COLS}

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        part_cols = whole(parameters, "part_cols")
        return (
            Argument("int", "num_strips", "size", "strips of 16 rows"),
            Argument("int", "num_parts", "size", f"parts of {part_cols} columns"),
            Argument("int", "part_lines", "size", f"most lines of a piece, a multiple of {LINES_AT_ONCE}"),
            Argument(
                "const int*",
                "line_offsets",
                "index",
                "first line of 64 values of each piece, a multiple of 4, length num_strips * num_parts + 1; the piece "
                "of strip s and part p is s * num_parts + p",
            ),
            Argument(
                "const int*",
                "quarter_chunks",
                "index",
                "chunks of 64 columns of each piece, from its first, that need no line beyond the first, second, third "
                "and fourth quarter (rounded up to 4 lines); the last also ends them: none behind holds anything; "
                "length 4 a piece",
            ),
            Argument(
                "const int*",
                "masks",
                "index",
                f"bits of lane l in chunk c of a piece at (piece * {part_cols // CHUNK_COLS} + c) * 32 + l: bit "
                "8 * (2 * h + e) + 2 * k + j is row l / 4 + 8 * h, column 16 * k + 4 * (l % 4) + 2 * j + e",
            ),
            Argument(
                "const T*",
                "values",
                "values",
                "lines of 64: line 0 of a piece is zero, value i of lane l's row l / 4 + 8 * h stands in line i + 1 at "
                "2 * l + h, by column; zero behind the last, one line at least",
            ),
        )

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        grid = _grid(pattern, parameters)
        grid.refuse(pattern.nnz)
        pieces = [_built(pattern, grid, first, past) for first, past in grid.batches()]
        lines = np.concatenate([built.lines for built in pieces])
        refuse_padding(self.name, LINE * int(lines.sum()), pattern.nnz)
        line_offsets = np.zeros(lines.size + 1, np.int32)
        np.cumsum(lines, out=line_offsets[1:])
        sources = np.concatenate([built.sources for built in pieces])
        return Layout(
            sizes={"num_strips": grid.num_strips, "num_parts": grid.num_parts, "part_lines": int(lines.max())},
            indices={
                "line_offsets": line_offsets,
                "quarter_chunks": np.concatenate([built.quarter_chunks for built in pieces]),
                "masks": np.concatenate([built.masks for built in pieces]),
            },
            value_sources=sources,
            num_slots=sources.size,
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        num_parts, part_cols = layout.sizes["num_parts"], whole(parameters, "part_cols")
        words = layout.indices["masks"].astype("<i4", copy=False)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        word, bit = np.divmod(np.flatnonzero(bits), 32)
        chunk, lane = np.divmod(word, 32)
        piece, chunk = np.divmod(chunk, part_cols // CHUNK_COLS)
        byte, place = np.divmod(bit, 8)
        rows = piece // num_parts * STRIP_ROWS + byte // 2 * 8 + lane // 4
        within = place // 2 * 16 + lane % 4 * 4 + place % 2 * 2 + byte % 2
        return pattern_from_indices(
            num_rows, num_cols, rows, piece % num_parts * part_cols + chunk * CHUNK_COLS + within
        )


@dataclass(frozen=True)
class _Grid:
    num_strips: int
    num_parts: int
    part_cols: int

    @property
    def chunks(self) -> int:
        """Of a part."""
        return self.part_cols // CHUNK_COLS

    @property
    def padded_cols(self) -> int:
        return self.num_parts * self.part_cols

    def refuse(self, nnz: int) -> None:
        """Raises InvalidProgram where the bits alone are more than nonzeros warrant."""
        num_words = self.num_strips * STRIP_ROWS * (self.padded_cols // 32)
        refuse_bookkeeping("bitmap", "words of bits", num_words, nnz)

    def batches(self) -> Iterator[tuple[int, int]]:
        """First strip and the one past the last of those that are built at once."""
        step = max(1, ENTRIES_AT_ONCE // (STRIP_ROWS * self.padded_cols))
        for first in range(0, self.num_strips, step):
            yield first, min(first + step, self.num_strips)

    def dense_shape(self, num_strips: int) -> tuple[int, ...]:
        """Of so many strips, as `_SPLIT` names it."""
        return num_strips, 2, 8, self.num_parts, self.chunks, 4, 4, 2, 2


def _grid(pattern: Pattern, parameters: Parameters) -> _Grid:
    part_cols = whole(parameters, "part_cols")
    num_strips, num_parts = -(-pattern.num_rows // STRIP_ROWS), -(-pattern.num_cols // part_cols)
    refuse_overflow("bitmap", "num_strips * 16", num_strips * STRIP_ROWS)
    refuse_overflow("bitmap", "num_parts * part_cols", num_parts * part_cols)
    return _Grid(num_strips, num_parts, part_cols)


@dataclass(frozen=True)
class _Built:
    """Of some strips."""

    lines: IntArray
    """Of each piece."""
    quarter_chunks: npt.NDArray[np.int32]
    masks: npt.NDArray[np.int32]
    sources: npt.NDArray[np.int32]


def _built(pattern: Pattern, grid: _Grid, first: int, past: int) -> _Built:
    numbers = _numbered(pattern, grid, first, past)
    bits = _ordered(numbers, "strip part chunk group quad half odd tile pair") > 0
    masks = np.packbits(bits.reshape(-1), bitorder="little").view("<i4")
    streams = _ordered(numbers, "strip part group quad half chunk tile pair odd")
    streams = streams.reshape(-1, LINE, grid.part_cols // 4)
    counts = np.cumsum(streams > 0, axis=2, dtype=np.int16)
    lines, quarter_chunks = _lines(counts)
    piece, stream, entry = np.nonzero(streams)
    starts = np.cumsum(lines) - lines
    sources = np.full(LINE * int(lines.sum()), -1, np.int32)
    slots = (starts[piece] + counts[piece, stream, entry]) * LINE + stream
    sources[slots] = streams[piece, stream, entry] - 1
    return _Built(lines, quarter_chunks, masks.astype(np.int32, copy=False), sources)


def _numbered(pattern: Pattern, grid: _Grid, first: int, past: int) -> npt.NDArray[np.int32]:
    """The strips as a dense matrix of the nonzeros' numbers in CSR order, from 1; 0 where there is none. Its shape is
    as `_SPLIT` names it."""
    rows = slice(first * STRIP_ROWS, min(past * STRIP_ROWS, pattern.num_rows))
    begin, end = int(pattern.row_offsets[rows.start]), int(pattern.row_offsets[rows.stop])
    dense = np.zeros(((past - first) * STRIP_ROWS, grid.padded_cols), np.int32)
    own_rows = np.repeat(np.arange(rows.stop - rows.start), pattern.row_lengths[rows])
    dense[own_rows, pattern.col_indices[begin:end]] = np.arange(begin + 1, end + 1, dtype=np.int32)
    return dense.reshape(grid.dense_shape(past - first))


def _ordered(dense: npt.NDArray[np.int32], names: str) -> npt.NDArray[np.int32]:
    """With its axes in this order, side by side in memory."""
    return np.ascontiguousarray(dense.transpose([_SPLIT.index(name) for name in names.split()]))


def _lines(counts: npt.NDArray[np.int16]) -> tuple[IntArray, npt.NDArray[np.int32]]:
    """Lines of each piece, and its `quarter_chunks`, from how many values each stream has up to each of its
    entries."""
    at_ends = counts[:, :, CHUNK_COLS // 4 - 1 :: CHUNK_COLS // 4]
    reach, stored = at_ends.max(axis=1).astype(np.int64), at_ends.sum(axis=1, dtype=np.int64)
    longest = reach[:, -1]
    lines = np.where(longest > 0, _rounded_up(longest + 2), 0)
    # What is read of a stream goes one line beyond the last value that is needed.
    quarters = np.minimum(_rounded_up(-(-lines // QUARTERS))[:, None] * np.arange(1, QUARTERS + 1), lines[:, None])
    past_filled = np.where(longest > 0, (stored < stored[:, -1:]).sum(axis=1) + 1, 0)
    fitting = (reach[:, None, :] + 2 <= quarters[:, :, None]).sum(axis=2)
    return lines, np.minimum(fitting, past_filled[:, None]).astype(np.int32).reshape(-1)


def _rounded_up(lines: IntArray) -> IntArray:
    return -(-lines // LINES_AT_ONCE) * LINES_AT_ONCE
