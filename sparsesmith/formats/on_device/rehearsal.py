"""Building of every format once, before somebody waits for it."""

import numpy as np

from sparsesmith.formats import complete_parameters, format_named
from sparsesmith.formats.on_device.catalogue import FORMATS, build_on_device
from sparsesmith.formats.on_device.machine import FEW, DeviceCsr, Machine
from sparsesmith.matrix.pattern import Pattern

SORTED = {"sell": {"sigma": 0}}
"""What a format is given so that it sorts: its parameters' defaults do not."""


def rehearse_building(machine: Machine) -> None:
    """Has a machine compile and load each of its kernels, by building each format of a matrix."""
    rows = np.arange(FEW + 1, dtype=np.int32)  # So many that no array of zeros is uploaded.
    pattern = Pattern(FEW, FEW, rows, rows[:-1])
    arrays = (machine.upload(pattern.row_offsets), machine.upload(pattern.col_indices))
    csr = DeviceCsr(pattern.num_rows, pattern.num_cols, pattern.nnz, *arrays)
    for name in FORMATS:
        format_ = format_named(name)
        build_on_device(machine, csr, format_, complete_parameters(format_, SORTED.get(name, {})), pattern)
