"""`bsr` and `bsell` on the device."""

from dataclasses import replace

import numpy as np

from sparsesmith.formats.bsell import vector_of
from sparsesmith.formats.format import (
    MAX_OFFSET,
    MAX_PADDING_RATIO,
    Layout,
    Parameters,
    refuse_overflow,
    refuse_padding,
    whole,
)
from sparsesmith.formats.on_device.machine import WARP, DeviceCsr, Machine, zeros
from sparsesmith.formats.on_device.padded import build_sell
from sparsesmith.formats.on_device.sorting import exclusive_sums, sorted_by

NO_NONZERO = -1


def build_bsr(machine: Machine, csr: DeviceCsr, parameters: Parameters) -> Layout | None:
    """None: more places for blocks than 32 bits count. Raises InvalidProgram as the host's builder."""
    block_rows, block_cols = whole(parameters, "block_rows"), whole(parameters, "block_cols")
    num_block_rows, num_block_cols = -(-csr.num_rows // block_rows), -(-csr.num_cols // block_cols)
    refuse_overflow("bsr", "num_block_rows * block_rows", num_block_rows * block_rows)
    refuse_overflow("bsr", "padded num_cols", num_block_cols * block_cols)
    largest_key = num_block_rows * num_block_cols - 1
    if largest_key > MAX_OFFSET:
        return None
    keys, rows = machine.empty(csr.nnz, np.int32), machine.empty(csr.nnz, np.int32)
    matrix, shape = (csr.row_offsets, csr.col_indices, csr.num_rows), (block_rows, block_cols, num_block_cols)
    machine.launch("key_by_block", WARP * csr.num_rows, (*matrix, *shape, keys, rows))
    order = sorted_by(machine, keys, csr.nnz, largest_key)
    is_first = zeros(machine, csr.nnz + 1)
    machine.launch("mark_first", csr.nnz, (keys, order, csr.nnz, is_first))
    before = exclusive_sums(machine, is_first, csr.nnz + 1)
    num_blocks, size = int(machine.download(before[csr.nnz :])[0]), block_rows * block_cols
    if size > MAX_PADDING_RATIO or size * csr.nnz > MAX_OFFSET:
        refuse_padding("bsr", size * num_blocks, csr.nnz)

    num_slots, counts = size * num_blocks, zeros(machine, num_block_rows + 1)
    columns, sources = machine.empty(num_blocks, np.int32), machine.empty(num_slots, np.int32)
    machine.launch("set_all", num_slots, (sources, num_slots, NO_NONZERO))
    machine.launch(
        "fill_blocks",
        csr.nnz,
        (keys, order, is_first, before, csr.nnz, rows, csr.col_indices, *shape, counts, columns, sources),
    )
    indices = {
        "block_row_offsets": exclusive_sums(machine, counts, num_block_rows + 1),
        "block_col_indices": columns,
    }
    return Layout({"num_block_rows": num_block_rows}, indices, sources, num_slots)


def build_bsell(machine: Machine, csr: DeviceCsr, parameters: Parameters) -> Layout | None:
    """None: see build_bsr. Raises InvalidProgram as the host's builder."""
    rows, cols, slice_ = (whole(parameters, name) for name in ("block_rows", "block_cols", "slice"))
    blocks = build_bsr(machine, csr, {"block_rows": rows, "block_cols": cols})
    if blocks is None:
        return None
    size = rows * cols
    of_blocks = DeviceCsr(
        blocks.sizes["num_block_rows"],
        -(-csr.num_cols // cols),
        blocks.num_slots // size,
        blocks.indices["block_row_offsets"],
        blocks.indices["block_col_indices"],
    )
    slices = build_sell(machine, of_blocks, {name: parameters[name] for name in ("slice", "sigma", "index")})
    if slices is None:
        return None
    num_slots = slices.num_slots * size
    refuse_padding("bsell", num_slots, csr.nnz)
    sources = machine.empty(num_slots, np.int32)
    given = (blocks.value_sources, slices.value_sources, num_slots, size, slice_, vector_of(size), sources)
    machine.launch("fill_planes", num_slots, given)
    renamed = {"row_permutation": "block_row_permutation", "col_indices": "block_col_indices"}
    indices = {renamed.get(name, name): array for name, array in slices.indices.items()}
    return replace(slices, indices=indices, value_sources=sources, num_slots=num_slots)
