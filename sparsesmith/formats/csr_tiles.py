"""Whole rows packed into tiles of a fixed number of slots: every address a kernel reads first follows from its index.

A block or a warp loads its tile's columns, values and row bounds at once, without reading offsets before; x is the only
dependent load. Rows longer than a tile may be split into pieces, whose sums a second launch adds up. Popular columns
may be numbered first, so that a kernel knows which rows of a dense operand it holds in shared memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.csr_rowblocks import partition
from sparsesmith.formats.format import (
    INDEX_WIDTH,
    Argument,
    Format,
    IntegerRange,
    Layout,
    OneOf,
    Parameters,
    ParameterSpec,
    index_type,
    narrow_columns,
    pattern_of_slots,
    refuse_overflow,
    refuse_padding,
    whole,
)
from sparsesmith.formats.hubs import numbered_by_hub
from sparsesmith.matrix.pattern import Int32Array, Pattern

Scalar = TypeVar("Scalar", bound=np.generic)

LANES = 32
NO_ROW = -1
_SLOTS_AT_A_TIME = 1 << 15
"""Temporary arrays of this many slots stay in a core's cache."""
MAX_OFFSETS_RATIO = 16
"""More row bounds than this for each row and nonzero (and over 2**20) are refused."""

ROWS = OneOf("natural", ("natural", "length", "column"))
LONG_ROWS = OneOf("refuse", ("refuse", "split"))
ORDER = OneOf("row", ("row", "column"))
HUB_COLS = IntegerRange(0, 0, 65536)


@dataclass(frozen=True)
class CsrTiles(Format):
    name: str = "csr_tiles"

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        return {
            "chunks": IntegerRange(8, 1, 128),
            "vector": OneOf(4, (1, 2, 4)),
            "max_rows": IntegerRange(256, 1, 4096),
            "index": INDEX_WIDTH,
            "order": ORDER,
            "rows": ROWS,
            "long_rows": LONG_ROWS,
            "hub_cols": HUB_COLS,
        }

    def arguments(self, parameters: Parameters) -> tuple[Argument, ...]:
        narrow, has_hubs = parameters["index"] == "u16", parameters["hub_cols"] != 0
        sorts = parameters["order"] == "column"
        base = _CHUNK_COL_BASE if sorts else _TILE_COL_BASE
        column = "number of the column" if has_hubs else "column"
        return (
            Argument("int", "num_tiles", "size", f"tiles of {capacity_of(parameters)} slots"),
            *(_SPLIT_SIZES if parameters["long_rows"] == "split" else ()),
            *(_HUBS if has_hubs else ()),
            _TILE_ROWS if parameters["rows"] == "natural" else _ROW_IDS,
            Argument(
                "const unsigned short*",
                "local_offsets",
                "index",
                "where each of the tile's rows begins within the tile, at tile * (max_rows + 1) + row; rows beyond the "
                "last repeat the end",
            ),
            *((base,) if narrow else ()),
            Argument(
                index_type(parameters),
                "col_indices",
                "index",
                f"{column} of each slot; nonzero q of a tile is at tile * capacity + (q / 32 / vector * 32 + q % 32) * "
                f"vector + q / 32 % vector; padding repeats the tile's largest (0 in an empty tile)"
                + (f"; minus {base.name}" if narrow else "")
                + ("; a hub's number is its place among the hubs, another column's is num_hubs more" * has_hubs),
            ),
            *((_PLACES,) if sorts else ()),
            Argument(
                "const T*", "values", "values", "value of each slot, in the order of col_indices; padding is zero"
            ),
            *(_SPLIT_ARRAYS if parameters["long_rows"] == "split" else ()),
        )

    def build(self, pattern: Pattern, parameters: Parameters) -> Layout:
        if whole(parameters, "hub_cols") == 0:
            return self._built(pattern, parameters)
        hubs, numbers = numbered_by_hub("csr_tiles", pattern, whole(parameters, "hub_cols"))
        numbered = Pattern(
            pattern.num_rows, pattern.num_cols + hubs.size, pattern.row_offsets, numbers.take(pattern.col_indices)
        )
        layout = self._built(numbered, parameters)
        return replace(
            layout,
            sizes={**layout.sizes, "num_hubs": hubs.size},
            indices={**layout.indices, "hub_columns": hubs},
        )

    def _built(self, pattern: Pattern, parameters: Parameters) -> Layout:
        sequence = row_sequence(pattern, str(parameters["rows"]))
        tiles = cut_tiles(pattern, sequence, parameters)
        indices: dict[str, npt.NDArray[np.generic]] = tiles.rows(sequence, parameters)
        slots = _stored_slots(pattern, tiles, tiles.in_csr_order(pattern, sequence), parameters)
        splits = parameters["long_rows"] == "split"
        return Layout(
            sizes={"num_tiles": tiles.counts.size} | (tiles.split_sizes if splits else {}),
            indices=indices | slots.indices | (tiles.split_arrays(sequence) if splits else {}),
            value_sources=slots.sources,
            num_slots=slots.sources.size,
            scratch={"carry": max(tiles.counts.size - tiles.num_whole, 1)} if splits else {},
        )

    def restore(self, layout: Layout, parameters: Parameters, num_rows: int, num_cols: int) -> Pattern:
        columns = _straighten(layout.indices["col_indices"].astype(np.int32), parameters)
        if parameters["index"] == "u16":
            bases = layout.indices[_base_of(parameters)].astype(np.int32)[:, None]
            columns = (_runs_of_one_base(columns, parameters) + bases).reshape(columns.shape)
        if whole(parameters, "hub_cols"):
            columns = np.concatenate([layout.indices["hub_columns"], np.arange(num_cols, dtype=np.int32)])[columns]
        assert layout.value_sources is not None
        stored = _straighten(layout.value_sources, parameters) >= 0
        rows = _rows_of_places(layout, parameters, columns.shape)
        if parameters["order"] == "column":
            places = _straighten(layout.indices["places"].astype(np.int64), parameters)
            rows = np.take_along_axis(rows, places, axis=1)
        flat = Layout(layout.sizes, {}, np.where(stored, 0, -1).astype(np.int32).reshape(-1), layout.num_slots)
        return pattern_of_slots(num_rows, num_cols, rows.reshape(-1), columns.reshape(-1), flat)


_TILE_ROWS = Argument(
    "const int*", "tile_rows", "index", "first row of tile t at 2 * t, the row past its last at 2 * t + 1"
)
_ROW_IDS = Argument(
    "const int*", "row_ids", "index", "row of each place for a row, at tile * max_rows + place, -1 for none"
)
_TILE_COL_BASE = Argument("const int*", "tile_col_base", "index", "smallest column of each tile (0 if empty)")
_CHUNK_COL_BASE = Argument("const int*", "col_base", "index", "smallest column of each chunk, at slot / 32 / vector")
_PLACES = Argument(
    "const unsigned short*",
    "places",
    "index",
    "where in its tile, counted row by row, each slot belongs; padding behind the nonzeros",
)
_HUBS = (
    Argument("int", "num_hubs", "size", "hubs: hub_cols, or num_cols if that is less"),
    Argument("const int*", "hub_columns", "index", "column of each hub, most popular first, length num_hubs"),
)
_SPLIT_SIZES = (
    Argument("int", "num_whole_tiles", "size", "tiles of whole rows; those behind hold one piece of a long row each"),
    Argument("int", "num_split_rows", "size", "rows longer than a tile"),
)
_SPLIT_ARRAYS = (
    Argument("const int*", "split_rows", "index", "the rows longer than a tile (one 0 if there are none)"),
    Argument(
        "const int*",
        "split_pieces",
        "index",
        "first piece of each of them, length num_split_rows + 1; piece p is tile num_whole_tiles + p",
    ),
    Argument("T*", "carry", "scratch", "an element for each piece (at least one)"),
)


def capacity_of(parameters: Parameters) -> int:
    """Slots of a tile."""
    return LANES * whole(parameters, "vector") * whole(parameters, "chunks")


def row_sequence(pattern: Pattern, rows: str) -> Int32Array:
    """The order in which rows are packed; ties keep their order.

    natural: as they are; length: longest first; column: by the column of the middle nonzero, empty rows first.
    """
    match rows:
        case "length":
            key = -pattern.row_lengths
        case "column":
            middle = pattern.row_offsets[:-1] + pattern.row_lengths // 2
            key = np.where(pattern.row_lengths > 0, pattern.col_indices[np.minimum(middle, pattern.nnz - 1)], -1)
        case _:
            return np.arange(pattern.num_rows, dtype=np.int32)
    return np.argsort(key, kind="stable").astype(np.int32)


@dataclass(frozen=True)
class Tiles:
    """Where the rows go, in the sequence in which they are packed; tiles of whole rows first, then pieces."""

    capacity: int
    num_whole: int
    offsets: npt.NDArray[np.int64]
    """First nonzero of each row of the sequence, and nnz."""
    first_rows: npt.NDArray[np.int64]
    """First row of each tile, as a position in the sequence."""
    end_rows: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    """First nonzero of each tile."""
    counts: npt.NDArray[np.int64]
    """Nonzeros of each tile."""

    def in_csr_order(self, pattern: Pattern, sequence: Int32Array) -> Int32Array | None:
        """Position in CSR order of each nonzero of the sequence; None where it is the same."""
        if np.array_equal(sequence, np.arange(sequence.size)):
            return None
        moves = (pattern.row_offsets[sequence] - self.offsets[:-1]).astype(np.int32)
        in_csr = np.repeat(moves, np.diff(self.offsets))
        in_csr += np.arange(pattern.nnz, dtype=np.int32)
        return in_csr

    def sources(self, piece: slice, in_csr: Int32Array | None) -> Int32Array:
        """Position in CSR order of each nonzero of some tiles, -1 behind the last, shape [tiles, capacity]."""
        places = np.arange(self.capacity, dtype=np.int32)
        sources: Int32Array = self.starts[piece].astype(np.int32)[:, None] + places
        if in_csr is not None:
            sources = in_csr.take(sources, mode="clip")
        sources[places >= self.counts[piece, None]] = -1
        return sources

    def columns(self, pattern: Pattern, sources: Int32Array) -> Int32Array:
        """Column of each place; behind the last nonzero the tile's largest column, 0 in an empty tile."""
        columns: Int32Array = pattern.col_indices.take(sources, mode="clip")
        outside = sources < 0
        columns[outside] = -1
        largest = np.maximum(columns.max(axis=1, initial=-1), 0)
        np.copyto(columns, largest[:, None], where=outside)
        return columns

    def rows(self, sequence: Int32Array, parameters: Parameters) -> dict[str, npt.NDArray[np.generic]]:
        """The arrays that say which rows a tile holds and where they begin."""
        places = np.arange(whole(parameters, "max_rows") + 1)
        bounds = np.minimum(self.first_rows[:, None] + places, self.end_rows[:, None])
        local = np.clip(self.offsets[bounds] - self.starts[:, None], 0, self.counts[:, None])
        named: npt.NDArray[np.generic]
        if parameters["rows"] == "natural":
            named = np.stack([self.first_rows, self.end_rows], axis=1).astype(np.int32).reshape(-1)
            name = "tile_rows"
        else:
            ids = sequence[np.minimum(bounds[:, :-1], sequence.size - 1)]
            named = np.where(bounds[:, :-1] < self.end_rows[:, None], ids, np.int32(NO_ROW)).reshape(-1)
            name = "row_ids"
        return {name: named, "local_offsets": local.astype(np.uint16).reshape(-1)}

    @property
    def _first_pieces(self) -> npt.NDArray[np.int64]:
        """The tile that begins each split row."""
        begins = self.starts[self.num_whole :] == self.offsets[self.first_rows[self.num_whole :]]
        return np.flatnonzero(begins)

    @property
    def split_sizes(self) -> dict[str, int]:
        return {"num_whole_tiles": self.num_whole, "num_split_rows": self._first_pieces.size}

    def split_arrays(self, sequence: Int32Array) -> dict[str, npt.NDArray[np.generic]]:
        pieces = self._first_pieces
        rows = sequence[self.first_rows[self.num_whole + pieces]] if pieces.size else np.zeros(1, np.int32)
        ends = np.append(pieces, self.counts.size - self.num_whole).astype(np.int32)
        return {"split_rows": rows, "split_pieces": ends}


def cut_tiles(pattern: Pattern, sequence: Int32Array, parameters: Parameters) -> Tiles:
    """Packs rows greedily. Raises InvalidProgram for rows that are too long, or mostly padding."""
    capacity, max_rows = capacity_of(parameters), whole(parameters, "max_rows")
    longest = int(pattern.row_lengths.max())
    if longest > capacity and parameters["long_rows"] == "refuse":
        raise InvalidProgram(
            f"format csr_tiles: a row has {longest} nonzeros, a tile {capacity} slots; long_rows=split splits it",
            field="chunks",
            value=longest,
            limit=capacity,
        )
    offsets = np.zeros(sequence.size + 1, np.int64)
    np.cumsum(pattern.row_lengths[sequence], out=offsets[1:])
    boundaries = partition(offsets.astype(np.int32), capacity, max_rows).astype(np.int64)
    sizes = np.diff(offsets[boundaries])
    fits = sizes <= capacity
    pieces = -(-sizes[~fits] // capacity)
    _refuse_waste(fits.sum() + int(pieces.sum()), capacity, max_rows, pattern)
    piece = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    long_rows = np.repeat(boundaries[:-1][~fits], pieces)
    first_rows = np.concatenate([boundaries[:-1][fits], long_rows])
    end_rows = np.concatenate([boundaries[1:][fits], long_rows + 1])
    starts = offsets[first_rows]
    starts[fits.sum() :] += piece * capacity
    counts = np.minimum(offsets[end_rows] - starts, capacity)
    return Tiles(capacity, int(fits.sum()), offsets, first_rows, end_rows, starts, counts)


def _refuse_waste(num_tiles: int, capacity: int, max_rows: int, pattern: Pattern) -> None:
    refuse_padding("csr_tiles", num_tiles * capacity, pattern.nnz)
    refuse_overflow("csr_tiles", "num_tiles * (max_rows + 1)", num_tiles * (max_rows + 1))
    limit = max(MAX_OFFSETS_RATIO * (pattern.nnz + pattern.num_rows), 2**20)
    if num_tiles * (max_rows + 1) > limit:
        raise InvalidProgram(
            f"format csr_tiles would store {num_tiles * (max_rows + 1)} row bounds (at most {limit}): lower max_rows",
            field="max_rows",
            value=num_tiles * (max_rows + 1),
            limit=limit,
        )


@dataclass(frozen=True)
class _StoredSlots:
    """Everything with an entry for each slot or chunk, in stored order."""

    indices: dict[str, npt.NDArray[np.generic]]
    sources: Int32Array


def _stored_slots(pattern: Pattern, tiles: Tiles, in_csr: Int32Array | None, parameters: Parameters) -> _StoredSlots:
    """Tiles are filled one by one: so many at a time that they fit the cache."""
    num_slots, chunk = tiles.counts.size * tiles.capacity, LANES * whole(parameters, "vector")
    narrow, sorts = parameters["index"] == "u16", parameters["order"] == "column"
    base_name = _base_of(parameters)
    all_sources = np.empty(num_slots, np.int32)
    indices: dict[str, npt.NDArray[Any]] = {"col_indices": np.empty(num_slots, np.uint16 if narrow else np.int32)}
    if narrow:
        indices[base_name] = np.empty(num_slots // chunk if sorts else tiles.counts.size, np.int32)
    if sorts:
        indices["places"] = np.empty(num_slots, np.uint16)
    at_a_time = max(1, _SLOTS_AT_A_TIME // tiles.capacity)
    for first in range(0, tiles.counts.size, at_a_time):
        piece = slice(first, first + at_a_time)
        slots = slice(first * tiles.capacity, (first + at_a_time) * tiles.capacity)
        sources = tiles.sources(piece, in_csr)
        columns = tiles.columns(pattern, sources)
        if sorts:
            places, columns, sources = _by_column(columns, sources, tiles.counts[piece], chunk)
            indices["places"][slots] = _interleave(places, parameters)
        if narrow:
            runs = _runs_of_one_base(columns, parameters)
            base = runs.min(axis=1)
            offsets = narrow_columns(runs - base[:, None], "csr_tiles", "columns of one base")
            indices[base_name][slots.start // runs.shape[1] :][: base.size] = base
            indices["col_indices"][slots] = _interleave(offsets, parameters)
        else:
            indices["col_indices"][slots] = _interleave(columns, parameters)
        all_sources[slots] = _interleave(sources, parameters)
    return _StoredSlots({**indices}, all_sources)


def _base_of(parameters: Parameters) -> str:
    """The argument that holds the bases of 16-bit columns: sorted ones reach far in chunks."""
    return _CHUNK_COL_BASE.name if parameters["order"] == "column" else _TILE_COL_BASE.name


def _runs_of_one_base(columns: Int32Array, parameters: Parameters) -> Int32Array:
    """Columns of tiles by base."""
    return columns.reshape(-1, LANES * whole(parameters, "vector")) if parameters["order"] == "column" else columns


def _by_column(
    columns: Int32Array, sources: Int32Array, counts: npt.NDArray[np.int64], chunk: int
) -> tuple[npt.NDArray[np.uint16], Int32Array, Int32Array]:
    """Places, columns and sources of each tile by column, then place; padding is shared out among the chunks.

    So 16 bits reach across the chunks of a tile with few nonzeros, too.
    """
    capacity = columns.shape[1]
    keys = np.sort(columns.astype(np.int64) << 16 | np.arange(capacity), axis=1)
    first = np.arange(0, keys.size, capacity)[:, None]
    order, nearest = _shared_out(counts, capacity, chunk)
    places = keys.take(order + first) & 0xFFFF
    # Padding repeats the column before it.
    sorted_columns = (keys.take(nearest + first) >> 16).astype(np.int32)
    return places.astype(np.uint16), sorted_columns, sources.take(places + first)


def _shared_out(
    counts: npt.NDArray[np.int64], capacity: int, chunk: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Which of a tile's sorted entries each slot takes: chunk c of C those from c * n // C to (c + 1) * n // C.

    And the nearest nonzero at or before it in its chunk, the tile's last entry in a chunk without nonzeros.
    """
    num_chunks = capacity // chunk
    cuts = counts[:, None] * np.arange(num_chunks + 1) // num_chunks
    begins, ends = cuts[:, :-1, None], cuts[:, 1:, None]
    slots = np.arange(capacity).reshape(num_chunks, chunk)
    entries = begins + slots % chunk
    # Behind the nonzeros of its chunk, slot s is padding number s - (nonzeros up to the chunk's end).
    order = np.where(entries < ends, entries, counts[:, None, None] + slots - ends)
    nearest = np.where(begins < ends, np.minimum(entries, ends - 1), capacity - 1)
    return order.reshape(-1, capacity), nearest.reshape(-1, capacity)


def _interleave(tiles: npt.NDArray[Scalar], parameters: Parameters) -> npt.NDArray[Scalar]:
    """Each lane's `vector` nonzeros side by side, while lanes hold neighbours: [tile, q] to stored order, flat."""
    vector = whole(parameters, "vector")
    return np.ascontiguousarray(tiles.reshape(-1, vector, LANES).transpose(0, 2, 1)).reshape(-1)


def _straighten(stored: npt.NDArray[Scalar], parameters: Parameters) -> npt.NDArray[Scalar]:
    """The inverse of _interleave, shape [tiles, capacity]."""
    vector = whole(parameters, "vector")
    tiles = np.ascontiguousarray(stored.reshape(-1, LANES, vector).transpose(0, 2, 1))
    return tiles.reshape(-1, capacity_of(parameters))


def _rows_of_places(layout: Layout, parameters: Parameters, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Row of each place of each tile, counted row by row; NO_ROW behind the nonzeros."""
    local = layout.indices["local_offsets"].astype(np.int64).reshape(-1, whole(parameters, "max_rows") + 1)
    if parameters["rows"] == "natural":
        ids = layout.indices["tile_rows"].astype(np.int64)[::2, None] + np.arange(local.shape[1] - 1)
    else:
        ids = layout.indices["row_ids"].astype(np.int64).reshape(-1, local.shape[1] - 1)
    rows = np.full(shape, NO_ROW, np.int64)
    rows[np.arange(shape[1]) < local[:, -1:]] = np.repeat(ids.reshape(-1), np.diff(local, axis=1).reshape(-1))
    return rows
