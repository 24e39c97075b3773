"""A plain Python kernel for each format, written from the meanings in the catalogue, not from the builders."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsesmith.formats import Layout, Parameters
from sparsesmith.matrix.pattern import Pattern

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Operands:
    num_rows: int
    num_cols: int
    layout: Layout
    parameters: Parameters
    values: npt.NDArray[np.floating[Any]]
    """In stored order."""
    x: Vector

    def array(self, name: str) -> list[int]:
        return [int(entry) for entry in self.layout.indices[name]]

    def size(self, name: str) -> int:
        return self.layout.sizes[name]

    @property
    def is_narrow(self) -> bool:
        return self.parameters.get("index") == "u16"


def multiply(
    pattern: Pattern, layout: Layout, format_name: str, parameters: Parameters, values: Vector, x: Vector
) -> Vector:
    """y = A x by walking the layout; every entry of y must be written once."""
    operands = Operands(pattern.num_rows, pattern.num_cols, layout, parameters, layout.pack(values), x)
    sums = WALKS[format_name](operands)
    return np.array([sums.get(row, np.nan) for row in range(pattern.num_rows)])


def _csr(o: Operands) -> dict[int, float]:
    offsets, columns = o.array("row_offsets"), o.array("col_indices")
    bases = o.array("row_col_base") if o.parameters["index"] in ("u8", "u16_row") else [0] * o.num_rows
    return {
        row: sum(o.values[j] * o.x[bases[row] + columns[j]] for j in range(offsets[row], offsets[row + 1]))
        for row in range(o.num_rows)
    }


def _csr_rowblocks(o: Operands) -> dict[int, float]:
    blocks, offsets, columns = o.array("block_rows"), o.array("row_offsets"), o.array("col_indices")
    bases = o.array("block_col_base") if o.is_narrow else [0] * o.size("num_blocks")
    sums: dict[int, float] = {}
    for block in range(o.size("num_blocks")):
        for row in range(blocks[block], blocks[block + 1]):
            assert row not in sums
            span = range(offsets[row], offsets[row + 1])
            sums[row] = sum(o.values[j] * o.x[bases[block] + columns[j]] for j in span)
    return sums


def _csr_tiles(o: Operands) -> dict[int, float]:
    vector, max_rows = int(o.parameters["vector"]), int(o.parameters["max_rows"])
    capacity = 32 * vector * int(o.parameters["chunks"])
    columns, bounds = o.array("col_indices"), o.array("local_offsets")
    sorts = o.parameters["order"] == "column"
    places = o.array("places") if sorts else []
    rows_of_tiles = o.array("tile_rows" if o.parameters["rows"] == "natural" else "row_ids")
    bases = o.array("col_base" if sorts else "tile_col_base") if o.is_narrow else []
    splits = o.parameters["long_rows"] == "split"
    num_whole = o.size("num_whole_tiles") if splits else o.size("num_tiles")
    x = o.x
    if o.parameters["hub_cols"]:
        x = np.concatenate([o.x[o.array("hub_columns")], o.x])
        assert o.size("num_hubs") == len(o.array("hub_columns"))
    sums: dict[int, float] = {}
    carry: list[float] = []
    for tile in range(o.size("num_tiles")):
        products: list[float] = [0.0] * capacity
        for q in range(capacity):
            slot = tile * capacity + (q // 32 // vector * 32 + q % 32) * vector + q // 32 % vector
            place = places[slot] if sorts else q
            base = bases[slot // 32 // vector if sorts else tile] if o.is_narrow else 0
            products[place] = o.values[slot] * x[base + columns[slot]]
        local = bounds[tile * (max_rows + 1) : (tile + 1) * (max_rows + 1)]
        assert not any(products[local[-1] :])
        if tile >= num_whole:
            carry.append(sum(products))
            continue
        if o.parameters["rows"] == "natural":
            first, end = rows_of_tiles[2 * tile : 2 * tile + 2]
            rows = list(range(first, end))
        else:
            rows = [row for row in rows_of_tiles[tile * max_rows : (tile + 1) * max_rows] if row >= 0]
        for place, row in enumerate(rows):
            assert row not in sums
            sums[row] = sum(products[local[place] : local[place + 1]])
    for number in range(o.size("num_split_rows") if splits else 0):
        pieces = o.array("split_pieces")[number : number + 2]
        row = o.array("split_rows")[number]
        assert row not in sums
        sums[row] = sum(carry[pieces[0] : pieces[1]])
    return sums


def _csr_distinct(o: Operands) -> dict[int, float]:
    row_ids = range(o.num_rows) if o.parameters["rows"] == "natural" else o.array("row_ids")
    blocks, firsts, columns = o.array("block_rows"), o.array("block_col_offsets"), o.array("block_cols")
    offsets, places = o.array("row_offsets"), o.array("col_indices")
    assert o.size("max_block_cols") == max(end - first for first, end in itertools.pairwise(firsts))
    sums: dict[int, float] = {}
    for block in range(o.size("num_blocks")):
        listed = columns[firsts[block] : firsts[block + 1]]
        assert listed == sorted(set(listed))
        assert {places[j] for j in range(offsets[blocks[block]], offsets[blocks[block + 1]])} == {*range(len(listed))}
        assert blocks[block + 1] - blocks[block] <= int(o.parameters["max_rows"])
        for row in range(blocks[block], blocks[block + 1]):
            assert row_ids[row] not in sums
            sums[row_ids[row]] = sum(
                o.values[j] * o.x[listed[places[j]]] for j in range(offsets[row], offsets[row + 1])
            )
    return sums


def _csr_merge(o: Operands) -> dict[int, float]:
    rows, starts = o.array("segment_rows"), o.array("segment_offsets")
    offsets, columns = o.array("row_offsets"), o.array("col_indices")
    bases = [0] * o.size("num_segments") if o.parameters["index"] == "i32" else o.array("segment_col_base")
    sums: dict[int, float] = {}
    carries: list[tuple[int, float]] = []
    for segment in range(o.size("num_segments")):
        j, end, base = starts[segment], starts[segment + 1], bases[segment]
        for row in range(rows[segment], rows[segment + 1]):
            assert row not in sums
            sums[row] = sum(o.values[k] * o.x[base + columns[k]] for k in range(j, offsets[row + 1]))
            j = offsets[row + 1]
        carries.append((rows[segment + 1], sum(o.values[k] * o.x[base + columns[k]] for k in range(j, end))))
    for row, carry in carries:
        if row < o.num_rows:
            sums[row] += carry
        else:
            assert carry == 0
    return sums


def _coo(o: Operands) -> dict[int, float]:
    rows, columns = o.array("row_indices"), o.array("col_indices")
    sums = dict.fromkeys(range(o.num_rows), 0.0)
    for j, (row, column) in enumerate(zip(rows, columns, strict=True)):
        sums[row] += o.values[j] * o.x[column]
    return sums


def _ell(o: Operands) -> dict[int, float]:
    width, stride, columns = o.size("width"), o.size("stride"), o.array("col_indices")
    return {
        row: sum(o.values[k * stride + row] * o.x[columns[k * stride + row]] for k in range(width))
        for row in range(o.num_rows)
    }


def _sell(o: Operands) -> dict[int, float]:
    lanes = int(o.parameters["slice"])
    offsets, permutation, columns = o.array("slice_offsets"), o.array("row_permutation"), o.array("col_indices")
    bases = _slot_bases(o, lanes)
    sums: dict[int, float] = {}
    for slice_ in range(o.size("num_slices")):
        for lane in range(lanes):
            slots = range(offsets[slice_] + lane, offsets[slice_ + 1], lanes)
            total = sum(o.values[slot] * o.x[bases[slot // lanes] + columns[slot]] for slot in slots)
            row = permutation[slice_ * lanes + lane]
            assert row not in sums
            if row >= 0:
                sums[row] = total
            else:
                assert total == 0
    return sums


def _slot_bases(o: Operands, lanes: int) -> list[int]:
    """What columns count from, for each slot of all lanes."""
    if o.parameters["index"] in ("u8", "u16_slot"):
        return o.array("slot_col_base")
    widths = np.diff(o.array("slice_offsets")) // lanes
    return np.repeat(o.array("slice_col_base"), widths).tolist() if o.is_narrow else [0] * int(widths.sum())


def _dia(o: Operands) -> dict[int, float]:
    sums = dict.fromkeys(range(o.num_rows), 0.0)
    count, lanes = o.size("num_diagonals"), int(o.parameters["slice"]) or o.num_rows
    for d, offset in enumerate(o.array("diagonal_offsets")):
        for row in range(o.num_rows):
            value = o.values[(row // lanes * count + d) * lanes + row % lanes]
            if 0 <= row + offset < o.num_cols:
                sums[row] += value * o.x[row + offset]
            else:
                assert value == 0
    return sums


def _bsr(o: Operands) -> dict[int, float]:
    height, width = int(o.parameters["block_rows"]), int(o.parameters["block_cols"])
    offsets, columns = o.array("block_row_offsets"), o.array("block_col_indices")
    sums = dict.fromkeys(range(o.num_rows), 0.0)
    for block_row in range(o.size("num_block_rows")):
        for block in range(offsets[block_row], offsets[block_row + 1]):
            for i in range(height):
                for k in range(width):
                    row, column = block_row * height + i, columns[block] * width + k
                    value = o.values[(block * height + i) * width + k]
                    if row < o.num_rows and column < o.num_cols:
                        sums[row] += value * o.x[column]
                    else:
                        assert value == 0
    return sums


def _row_bins_columns(o: Operands) -> list[int]:
    """Column of each slot, high bits put back slot by slot; relative to the warp's base where 16 bits are."""
    low, index = o.array("col_indices"), o.parameters["index"]
    if index not in ("u18", "u20"):
        return low
    bits = 2 if index == "u18" else 4
    slots, high = 8 // bits, o.array("high_bits")
    columns: list[int] = []
    first_byte = 0
    bins = [o.array("bins")[start : start + 4] for start in range(0, 4 * o.size("num_bins") + 4, 4)]
    for (warp, _, _, slot), (past_warp, _, _, past_slot) in itertools.pairwise(bins):
        steps = (past_slot - slot) // (past_warp - warp) // 32
        for _ in range(past_warp - warp):
            for k, lane in itertools.product(range(steps), range(32)):
                byte = high[first_byte + k // slots * 32 + lane]
                columns.append((byte >> k % slots * bits & (1 << bits) - 1) * 65536 + low[len(columns)])
            first_byte += -(-steps // slots) * 32
    assert first_byte == len(high)
    return columns


def _row_bins(o: Operands) -> dict[int, float]:
    if o.parameters["numbering"] != "natural":
        assert len(o.x) == o.layout.scratch["ordered_x"]
        o = replace(o, x=o.x[o.array("col_order")], parameters={**o.parameters, "numbering": "natural"})
    bins = [o.array("bins")[start : start + 4] for start in range(0, 4 * o.size("num_bins") + 4, 4)]
    permutation, columns = o.array("row_permutation"), _row_bins_columns(o)
    bases = o.array("warp_col_base") if o.is_narrow else [0] * o.size("num_warps")
    sums: dict[int, float] = {}
    for (warp, lanes, place, slot), (past_warp, _, _, past_slot) in itertools.pairwise(bins):
        warp_slots = (past_slot - slot) // (past_warp - warp)
        for group in range((past_warp - warp) * 32 // lanes):
            threads = range(group * lanes, (group + 1) * lanes)
            total = sum(
                o.values[s] * o.x[bases[warp + thread // 32] + columns[s]]
                for thread in threads
                for s in range(
                    slot + thread // 32 * warp_slots + thread % 32, slot + (thread // 32 + 1) * warp_slots, 32
                )
            )
            row = permutation[place + group]
            assert row not in sums
            if row >= 0:
                sums[row] = total
            else:
                assert total == 0
    assert bins[-1][0] == o.size("num_warps")
    return sums


def _panels(o: Operands) -> dict[int, float]:
    num_parts, num_panels, num_bins = o.size("num_parts"), o.size("num_panels"), o.size("num_bins")
    panels, parts, segments = o.array("part_panels"), o.array("part_offsets"), o.array("segment_offsets")
    columns, positions, offsets = o.array("col_indices"), o.array("positions"), o.array("row_offsets")
    bin_rows, cut_rows = o.array("bin_rows"), o.array("cut_rows")
    sums = {row: 0.0 for row in cut_rows if row >= 0}
    assert len(sums) == sum(row >= 0 for row in cut_rows)
    for round_ in range(int(o.parameters["rounds"])):
        products: dict[int, float] = {}
        origin = parts[round_ * num_parts]
        for part in range(round_ * num_parts, (round_ + 1) * num_parts):
            base = panels[part] * int(o.parameters["panel_cols"])
            for slot in range(parts[part], parts[part + 1]):
                products[slot - origin] = o.values[slot] * o.x[base + columns[slot]]
        assert len(products) <= o.layout.scratch["products"]
        for bin_ in range(num_bins):
            number = round_ * num_bins + bin_
            first, last = bin_rows[2 * number : 2 * number + 2]
            if first == last:
                continue
            in_order: dict[int, float] = {}
            for panel in range(num_panels):
                segment = (round_ * (num_bins + 1) + bin_) * num_panels + panel
                assert segments[segment] % 4 == 0
                for slot in range(segments[segment], segments[segment + num_panels]):
                    assert positions[slot] not in in_order
                    in_order[positions[slot]] = products[slot - origin]
            assert len(in_order) <= o.size("bin_slots")
            begin = number * o.size("bin_nnz")
            end = min(begin + o.size("bin_nnz"), offsets[-1])
            assert all(product == 0 for position, product in in_order.items() if position >= end - begin)
            for row in range(first, last):
                inside = range(max(offsets[row], begin), min(offsets[row + 1], end))
                is_cut = offsets[row] < begin or offsets[row + 1] > end
                assert is_cut == (row in sums)
                sums[row] = sums.get(row, 0.0) + sum(in_order[j - begin] for j in inside)
    return sums


def _hubs(o: Operands) -> dict[int, float]:
    hubs, columns = o.array("hub_columns"), o.array("col_indices")
    starts, ranks = o.array("row_starts"), o.array("row_ranks")
    num_slots = o.size("num_segments") * 32 * int(o.parameters["items"])
    sums: dict[int, float] = {}
    for slot in range(num_slots):
        word = starts[slot // 32] & 0xFFFFFFFF
        row = ranks[slot // 32] + (word & ((2 << slot % 32) - 1)).bit_count() - 1
        assert (row not in sums) == bool(word >> slot % 32 & 1)
        number = columns[slot]
        column = hubs[number] if number < o.size("num_hubs") else number - o.size("num_hubs")
        sums[row] = sums.get(row, 0.0) + o.values[slot] * o.x[column]
    return sums


def _hyb(o: Operands) -> dict[int, float]:
    width, stride = int(o.parameters["width"]), o.size("stride")
    columns, rest_cols = o.array("col_indices"), o.array("rest_cols")
    bases = o.array("slice_col_base") if o.is_narrow else [0] * (stride // 32)
    sums = {
        row: sum(o.values[k * stride + row] * o.x[bases[row // 32] + columns[k * stride + row]] for k in range(width))
        for row in range(o.num_rows)
    }
    rest_rows, rest = o.array("rest_rows"), o.values[width * stride :]
    if o.parameters["rest"] == "coo":
        for j in range(o.size("num_rest")):
            sums[rest_rows[j]] += rest[j] * o.x[rest_cols[j]]
        return sums
    offsets, mask = o.array("rest_offsets"), o.array("rest_mask")
    apart = {row for row in range(o.num_rows) if mask[row // 32] >> row % 32 & 1}
    assert sorted(apart) == sorted(rest_rows[: o.size("num_rest_rows")])
    for place, row in enumerate(rest_rows[: o.size("num_rest_rows")]):
        assert sums[row] == 0
        sums[row] = sum(rest[j] * o.x[rest_cols[j]] for j in range(offsets[place], offsets[place + 1]))
    return sums


def _bsell(o: Operands) -> dict[int, float]:
    height, width, lanes = (int(o.parameters[name]) for name in ("block_rows", "block_cols", "slice"))
    vector = next(vector for vector in (4, 2, 1) if height * width % vector == 0)
    offsets, permutation, columns = (
        o.array(name) for name in ("slice_offsets", "block_row_permutation", "block_col_indices")
    )
    bases = o.array("slice_col_base") if o.is_narrow else [0] * o.size("num_slices")
    sums = dict.fromkeys(range(o.num_rows), 0.0)
    for slice_ in range(o.size("num_slices")):
        for slot in range(offsets[slice_], offsets[slice_ + 1]):
            lane = (slot - offsets[slice_]) % lanes
            for e in range(height * width):
                value = o.values[(slot - lane) * height * width + (e // vector * lanes + lane) * vector + e % vector]
                row = permutation[slice_ * lanes + lane] * height + e // width
                column = (bases[slice_] + columns[slot]) * width + e % width
                if 0 <= row < o.num_rows and column < o.num_cols:
                    sums[row] += value * o.x[column]
                else:
                    assert value == 0
    return sums


def _cells(o: Operands) -> dict[int, float]:
    strips, height, cell_cols, pad = (int(o.parameters[name]) for name in ("strips", "height", "cell_cols", "pad"))
    cells, bounds, columns = (o.array(name) for name in ("cell_offsets", "strip_offsets", "col_indices"))
    sums = dict.fromkeys(range(o.num_rows), 0.0)
    for window, panel in itertools.product(range(o.size("num_windows")), range(o.size("num_panels"))):
        cell = window * o.size("num_panels") + panel
        assert cells[cell] % 16 == 0
        assert bounds[cell * (strips + 1) + strips] <= cells[cell + 1] - cells[cell] <= o.size("cell_slots")
        for strip in range(strips):
            begin, end = bounds[cell * (strips + 1) + strip : cell * (strips + 1) + strip + 2]
            assert begin % pad == 0
            for slot, i in itertools.product(range(cells[cell] + begin, cells[cell] + end), range(height)):
                row, value = (window * strips + strip) * height + i, o.values[slot * height + i]
                if row < o.num_rows:
                    sums[row] += value * o.x[panel * cell_cols + columns[slot]]
                else:
                    assert value == 0
    return sums


def _csc(o: Operands) -> dict[int, float]:
    offsets, rows, places = o.array("col_offsets"), o.array("row_indices"), o.array("places")
    sums = dict.fromkeys(range(o.num_rows), 0.0)
    for column in range(o.num_cols):
        for j in range(offsets[column], offsets[column + 1]):
            sums[rows[j]] += o.values[places[j]] * o.x[column]
    return sums


def _bitmap(o: Operands) -> dict[int, float]:
    part_cols, num_parts = int(o.parameters["part_cols"]), o.size("num_parts")
    starts, quarters, masks = (o.array(name) for name in ("line_offsets", "quarter_chunks", "masks"))
    sums = dict.fromkeys(range(o.num_rows), 0.0)
    for strip, part in itertools.product(range(o.size("num_strips")), range(num_parts)):
        piece = strip * num_parts + part
        num_lines = starts[piece + 1] - starts[piece]
        assert num_lines % 4 == 0
        assert num_lines <= o.size("part_lines")
        lines = o.values[64 * starts[piece] : 64 * starts[piece + 1]]
        taken: Counter[tuple[int, int]] = Counter()
        for chunk in range(part_cols // 64):
            for lane, k, j, h, e in itertools.product(range(32), range(4), range(2), range(2), range(2)):
                word = masks[(piece * part_cols // 64 + chunk) * 32 + lane]
                if not word >> (8 * (2 * h + e) + 2 * k + j) & 1:
                    continue
                assert chunk < quarters[4 * piece + 3]
                row = strip * 16 + lane // 4 + 8 * h
                taken[lane, h] += 1
                column = part * part_cols + chunk * 64 + 16 * k + lane % 4 * 4 + 2 * j + e
                sums[row] += lines[64 * taken[lane, h] + 2 * lane + h] * o.x[column]
            for quarter in range(4):
                if chunk + 1 == quarters[4 * piece + quarter]:
                    arrived = min(num_lines, (quarter + 1) * (-(-num_lines // 16) * 4))
                    assert max(taken.values()) + 1 < arrived
        assert all(
            lines[64 * i + 2 * lane + h] == 0
            for lane, h in itertools.product(range(32), range(2))
            for i in (0, *range(taken[lane, h] + 1, num_lines))
            if num_lines
        )
    return sums


WALKS: Mapping[str, Callable[[Operands], dict[int, float]]] = {
    "csr": _csr,
    "csr_rowblocks": _csr_rowblocks,
    "csr_tiles": _csr_tiles,
    "csr_merge": _csr_merge,
    "csr_distinct": _csr_distinct,
    "coo": _coo,
    "ell": _ell,
    "sell": _sell,
    "dia": _dia,
    "bsr": _bsr,
    "panels": _panels,
    "hubs": _hubs,
    "row_bins": _row_bins,
    "bsell": _bsell,
    "hyb": _hyb,
    "cells": _cells,
    "csc": _csc,
    "bitmap": _bitmap,
}
