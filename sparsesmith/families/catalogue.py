"""Every family by name."""

from collections.abc import Mapping

from sparsesmith.families import (
    block_slices,
    coo,
    csr,
    diagonals,
    hubs,
    hyb,
    merge,
    padded,
    panels,
    row_bins,
    row_blocks,
    spmm_balanced,
    spmm_blocks,
    spmm_hyb,
    spmm_resident,
    spmm_rows,
    spmm_splits,
    spmm_structured,
    spmm_tiles,
    structured,
    tiles,
)
from sparsesmith.families.dependency import with_dependency
from sparsesmith.families.family import Family

_MODULES = (
    *(csr, row_blocks, tiles, merge, coo, padded, structured, block_slices, diagonals, row_bins, panels, hubs),
    hyb,
    *(spmm_rows, spmm_balanced, spmm_structured, spmm_splits, spmm_tiles, spmm_resident, spmm_blocks, spmm_hyb),
)

FAMILIES: Mapping[str, Family] = {
    family.name: with_dependency(family) for module in _MODULES for family in module.FAMILIES
}
"""Spmv families first, then those of spmm."""
