"""`dia` on the device."""

import numpy as np

from sparsesmith.formats.dia import stored_rows
from sparsesmith.formats.format import MAX_OFFSET, Layout, Parameters, refuse_padding, whole
from sparsesmith.formats.on_device.machine import WARP, DeviceCsr, Machine, zeros
from sparsesmith.formats.on_device.sorting import exclusive_sums

NO_NONZERO = -1


def build_dia(machine: Machine, csr: DeviceCsr, parameters: Parameters) -> Layout | None:
    """None: more places for diagonals than 32 bits count. Raises InvalidProgram as the host's builder."""
    num_places = csr.num_rows + csr.num_cols - 1
    if num_places > MAX_OFFSET:
        return None
    in_use, matrix = zeros(machine, num_places + 1), (csr.row_offsets, csr.col_indices)
    machine.launch("mark_diagonals", WARP * csr.num_rows, (*matrix, csr.num_rows, in_use))
    ranks = exclusive_sums(machine, in_use, num_places + 1)
    num_diagonals, slice_ = int(machine.download(ranks[num_places:])[0]), whole(parameters, "slice")
    num_slots = num_diagonals * stored_rows(csr.num_rows, slice_)
    refuse_padding("dia", num_slots, csr.nnz)
    offsets, sources = machine.empty(num_diagonals, np.int32), machine.empty(num_slots, np.int32)
    machine.launch("list_diagonals", num_places, (in_use, ranks, num_places, csr.num_rows, offsets))
    machine.launch("set_all", num_slots, (sources, num_slots, NO_NONZERO))
    machine.launch("fill_dia", WARP * csr.num_rows, (*matrix, ranks, csr.num_rows, num_diagonals, slice_, sources))
    return Layout({"num_diagonals": num_diagonals}, {"diagonal_offsets": offsets}, sources, num_slots)
