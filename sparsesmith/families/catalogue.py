"""Every family by name. A new family is a module and its line here."""

from collections.abc import Mapping

from sparsesmith.families.family import Family
from sparsesmith.families.spmm import balanced, blocks, resident, rows, splits
from sparsesmith.families.spmm import hyb as spmm_hyb
from sparsesmith.families.spmm import structured as spmm_structured
from sparsesmith.families.spmm import tiles as spmm_tiles
from sparsesmith.families.spmv import (
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
    rows_staged,
    structured,
    tiles,
)

_LISTED = (
    *csr.FAMILIES,
    *rows_staged.FAMILIES,
    *tiles.FAMILIES,
    *merge.FAMILIES,
    *coo.FAMILIES,
    *padded.FAMILIES,
    *structured.FAMILIES,
    *block_slices.FAMILIES,
    *diagonals.FAMILIES,
    *row_bins.FAMILIES,
    *panels.FAMILIES,
    *hubs.FAMILIES,
    *hyb.FAMILIES,
    *rows.FAMILIES,
    *balanced.FAMILIES,
    *spmm_structured.FAMILIES,
    *splits.FAMILIES,
    *spmm_tiles.FAMILIES,
    *resident.FAMILIES,
    *blocks.FAMILIES,
    *spmm_hyb.FAMILIES,
)

FAMILIES: Mapping[str, Family] = {family.name: family for family in _LISTED}
"""Spmv families first, then those of spmm: the numbers of a cost model's words count from their order."""
