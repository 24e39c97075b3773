"""`ell` and `sell` on the device."""

import numpy as np

from sparsesmith.formats.building.windows import REACHES
from sparsesmith.formats.ell import ROW_ALIGNMENT
from sparsesmith.formats.format import (
    MAX_OFFSET,
    Layout,
    Parameters,
    narrow_columns,
    refuse_overflow,
    refuse_padding,
    whole,
)
from sparsesmith.formats.on_device.machine import DeviceArray, DeviceCsr, Machine, zeros
from sparsesmith.formats.on_device.sorting import counted_up, exclusive_sums, sorted_by


def build_ell(machine: Machine, csr: DeviceCsr, parameters: Parameters) -> Layout:
    """Raises InvalidProgram as the host's builder."""
    width = _longest(machine, csr)
    stride = -(-csr.num_rows // ROW_ALIGNMENT) * ROW_ALIGNMENT
    refuse_overflow("ell", "stride", stride)
    refuse_padding("ell", width * stride, csr.nnz)
    columns, sources = machine.empty(width * stride, np.int32), machine.empty(width * stride, np.int32)
    arguments = (csr.row_offsets, csr.col_indices, csr.num_rows, width, stride, columns, sources)
    machine.launch("fill_ell", stride, arguments)
    return Layout({"width": width, "stride": stride}, {"col_indices": columns}, sources, width * stride)


def build_sell(machine: Machine, csr: DeviceCsr, parameters: Parameters) -> Layout | None:
    """None: slots aligned to windows of columns, or keys of sorting beyond 32 bits. Raises as the host's builder."""
    slice_, sigma = whole(parameters, "slice"), whole(parameters, "sigma")
    num_slices = -(-csr.num_rows // slice_)
    refuse_overflow("sell", "num_slices * slice", num_slices * slice_)
    rows = None if parameters["index"] in REACHES else _sorted_rows(machine, csr, sigma)
    if rows is None:
        return None
    sizes, bases = zeros(machine, num_slices + 1), machine.empty(num_slices, np.int32)
    reach, total = zeros(machine, 1), zeros(machine, 1, np.uint64)
    matrix = (csr.row_offsets, csr.col_indices, rows, csr.num_rows, slice_)
    machine.launch("measure_slices", num_slices, (*matrix, num_slices, sizes, bases, reach, total))
    num_slots = int(machine.download(total)[0])
    refuse_padding("sell", num_slots, csr.nnz)
    narrow = parameters["index"] == "u16"
    if narrow:
        narrow_columns(machine.download(reach), "sell", "the columns of each slice")

    offsets, num_lanes = exclusive_sums(machine, sizes, num_slices + 1), num_slices * slice_
    permutation, sources = machine.empty(num_lanes, np.int32), machine.empty(num_slots, np.int32)
    columns = machine.empty(num_slots, np.uint16 if narrow else np.int32)
    nothing = machine.empty(1, np.int32 if narrow else np.uint16)
    of_width = (nothing, columns) if narrow else (columns, nothing)
    machine.launch(
        "fill_sell", num_lanes, (*matrix, num_lanes, offsets, bases, int(narrow), permutation, *of_width, sources)
    )
    indices = {"slice_offsets": offsets, "row_permutation": permutation}
    if narrow:
        indices["slice_col_base"] = bases
    return Layout({"num_slices": num_slices}, {**indices, "col_indices": columns}, sources, num_slots)


def _longest(machine: Machine, csr: DeviceCsr) -> int:
    longest = zeros(machine, 1)
    machine.launch("find_longest", csr.num_rows, (csr.row_offsets, csr.num_rows, longest))
    return int(machine.download(longest)[0])


def _sorted_rows(machine: Machine, csr: DeviceCsr, sigma: int) -> DeviceArray | None:
    """As `sell.sorted_rows`."""
    if sigma == 1:
        return counted_up(machine, csr.num_rows)
    longest, window = _longest(machine, csr), sigma or csr.num_rows
    largest_key = (csr.num_rows - 1) // window * (longest + 1) + longest
    if largest_key > MAX_OFFSET:
        return None
    keys = machine.empty(csr.num_rows, np.int32)
    machine.launch("key_by_length", csr.num_rows, (csr.row_offsets, csr.num_rows, window, longest, keys))
    return sorted_by(machine, keys, csr.num_rows, largest_key)
