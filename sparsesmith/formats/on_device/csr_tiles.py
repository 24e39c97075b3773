"""`csr_tiles` on the device. Which rows share a tile is found on the host, from the row offsets alone: each tile begins
where the one before ends."""

import numpy as np

from sparsesmith.formats.csr_tiles import capacity_of, cut_tiles, row_sequence
from sparsesmith.formats.format import Layout, Parameters, narrow_columns, whole
from sparsesmith.formats.on_device.machine import WARP, DeviceCsr, Machine, zeros
from sparsesmith.matrix.pattern import Pattern


def build_csr_tiles(machine: Machine, csr: DeviceCsr, parameters: Parameters, pattern: Pattern) -> Layout | None:
    """None: rows or columns in another order, or hubs. `pattern`: the same matrix on the host. Raises as the host's
    builder."""
    if parameters["rows"] != "natural" or parameters["order"] != "row" or parameters["hub_cols"] != 0:
        return None
    sequence = row_sequence(pattern, "natural")
    tiles = cut_tiles(pattern, sequence, parameters)
    num_tiles, capacity = tiles.counts.size, capacity_of(parameters)
    starts, counts, first_rows, end_rows = (
        machine.upload(numbers.astype(np.int32))
        for numbers in (tiles.starts, tiles.counts, tiles.first_rows, tiles.end_rows)
    )
    smallest, largest = machine.empty(num_tiles, np.int32), machine.empty(num_tiles, np.int32)
    reach = zeros(machine, 1)
    machine.launch(
        "measure_tiles", WARP * num_tiles, (csr.col_indices, starts, counts, num_tiles, smallest, largest, reach)
    )
    narrow = parameters["index"] == "u16"
    if narrow:
        narrow_columns(machine.download(reach), "csr_tiles", "columns of one base")

    bounds = whole(parameters, "max_rows") + 1
    local_offsets = machine.empty(num_tiles * bounds, np.uint16)
    machine.launch(
        "bound_tiles",
        num_tiles * bounds,
        (csr.row_offsets, first_rows, end_rows, starts, counts, num_tiles * bounds, bounds, local_offsets),
    )
    num_slots = num_tiles * capacity
    sources, columns = machine.empty(num_slots, np.int32), machine.empty(num_slots, np.uint16 if narrow else np.int32)
    nothing = machine.empty(1, np.int32 if narrow else np.uint16)
    of_width = (nothing, columns) if narrow else (columns, nothing)
    of_tiles = (csr.col_indices, starts, counts, smallest, largest, num_slots, capacity)
    vector = whole(parameters, "vector")
    machine.launch("fill_tiles", num_slots, (*of_tiles, vector, int(narrow), *of_width, sources))
    splits = parameters["long_rows"] == "split"
    split_arrays = tiles.split_arrays(sequence) if splits else {}
    tile_rows = np.stack([tiles.first_rows, tiles.end_rows], axis=1).astype(np.int32).reshape(-1)
    return Layout(
        sizes={"num_tiles": num_tiles} | (tiles.split_sizes if splits else {}),
        indices={
            "tile_rows": machine.upload(tile_rows),
            "local_offsets": local_offsets,
            **({"tile_col_base": smallest} if narrow else {}),
            "col_indices": columns,
            **{name: machine.upload(array) for name, array in split_arrays.items()},
        },
        value_sources=sources,
        num_slots=num_slots,
        scratch={"carry": max(num_tiles - tiles.num_whole, 1)} if splits else {},
    )
