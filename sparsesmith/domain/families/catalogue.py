"""Every family by name."""

from collections.abc import Mapping

from sparsesmith.domain.families import (
    coo,
    csr,
    diagonals,
    merge,
    padded,
    row_blocks,
    spmm_balanced,
    spmm_rows,
    spmm_structured,
    structured,
)
from sparsesmith.domain.families.family import Family

_MODULES = (csr, row_blocks, merge, coo, padded, structured, diagonals, spmm_rows, spmm_balanced, spmm_structured)

FAMILIES: Mapping[str, Family] = {family.name: family for module in _MODULES for family in module.FAMILIES}
"""Spmv families first, then those of spmm."""
