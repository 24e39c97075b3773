"""`row_bins` on the device."""

import numpy as np
import numpy.typing as npt

from sparsesmith.formats.building.high_bits import HIGH_BITS, check_reach, slots_a_byte
from sparsesmith.formats.format import Layout, Parameters, narrow_columns, numbers, whole
from sparsesmith.formats.on_device.machine import WARP, DeviceCsr, Machine, zeros
from sparsesmith.formats.on_device.sorting import sorted_by
from sparsesmith.formats.row_bins import (
    Bin,
    check_bins,
    check_longest,
    described_bins,
    lanes_of,
    place_bins,
)


def build_row_bins(machine: Machine, csr: DeviceCsr, parameters: Parameters) -> Layout:
    """Raises InvalidProgram as the host's builder."""
    limits, index = numbers(str(parameters["widths"])), parameters["index"]
    keys, counts, widths = (
        machine.empty(csr.num_rows, np.int32),
        zeros(machine, len(limits)),
        zeros(machine, len(limits)),
    )
    limits_there = machine.upload(np.array(limits, np.int32))
    arguments = (csr.row_offsets, csr.num_rows, limits_there, len(limits), keys, counts, widths)
    machine.launch("bin_rows", csr.num_rows, arguments)
    num_rows, longest = machine.download(counts), machine.download(widths)
    check_longest(int(longest.max()), limits)
    bins = _bins(num_rows[::-1], longest[::-1], whole(parameters, "steps"), whole(parameters, "max_lanes"))
    check_bins(bins, csr.nnz)
    rows_of_bins = num_rows[num_rows > 0]
    sorted_rows = sorted_by(machine, keys, csr.num_rows, len(limits) - 1)

    num_slots, num_warps = bins[-1].past_slot, bins[-1].past_warp
    narrow, mode = index != "i32", {"i32": 0, "u16": 1, **HIGH_BITS}[index]
    permutation, bases = machine.empty(bins[-1].past_row, np.int32), machine.empty(num_warps, np.int32)
    columns = machine.empty(num_slots, np.uint16 if narrow else np.int32)
    table, num_bytes = _table(bins, rows_of_bins, slots_a_byte(index) if index in HIGH_BITS else 0)
    high_bits = machine.empty(max(1, num_bytes), np.uint8)
    sources, reach = machine.empty(num_slots, np.int32), zeros(machine, 1)
    nothing = machine.empty(1, np.int32 if narrow else np.uint16)
    of_width = (nothing, columns) if narrow else (columns, nothing)
    machine.launch(
        "fill_row_bins",
        WARP * num_warps,
        (csr.row_offsets, csr.col_indices, sorted_rows, machine.upload(table), num_warps, mode, permutation, bases,
         *of_width, high_bits, sources, reach),
    )  # fmt: skip
    if index == "u16":
        narrow_columns(machine.download(reach), "row_bins", "columns of each warp")
    elif narrow:
        check_reach(int(machine.download(reach)[0]), index)
    indices = {"bins": machine.upload(described_bins(bins)), "row_permutation": permutation}
    if index == "u16":
        indices["warp_col_base"] = bases
    if index in HIGH_BITS:
        indices["high_bits"] = high_bits
    indices["col_indices"] = columns
    return Layout({"num_bins": len(bins), "num_warps": num_warps}, indices, sources, num_slots)


def _bins(
    num_rows: npt.NDArray[np.int32], longest: npt.NDArray[np.int32], steps: int, max_lanes: int
) -> tuple[Bin, ...]:
    """From the rows of each limit and the longest of them, the narrowest first."""
    held = num_rows > 0
    widths = [max(1, int(width)) for width in longest[held]]
    warps = [
        -(-int(count) * lanes_of(width, steps, max_lanes) // WARP)
        for count, width in zip(num_rows[held], widths, strict=True)
    ]
    return place_bins(tuple(widths), tuple(np.cumsum(warps[::-1]).tolist()), steps, max_lanes)


def _table(bins: tuple[Bin, ...], num_rows: npt.NDArray[np.int32], slots: int) -> tuple[npt.NDArray[np.int32], int]:
    """What `fill_row_bins` reads of the bins, and the bytes of all high bits; `slots`: whose high bits share a byte."""
    table = np.zeros((len(bins) + 1, 8), np.int32)
    first_row = first_byte = 0
    for line, bin_, count in zip(table, bins, num_rows.tolist(), strict=False):
        line[:] = (
            bin_.first_warp, bin_.lanes, bin_.steps, bin_.first_row, bin_.first_slot, first_row, count, first_byte,
        )  # fmt: skip
        first_row += count
        first_byte += bin_.num_warps * -(-bin_.steps // slots) * WARP if slots else 0
    table[-1, 0] = bins[-1].past_warp
    return table.reshape(-1), first_byte
