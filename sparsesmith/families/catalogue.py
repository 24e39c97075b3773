"""Every family by name. A new family of ours is a module and its line here; other packages register theirs.

An entry point of the group `sparsesmith.families` names a tuple of families, for our operations or for its own: those
of tasks among them.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points

from sparsesmith.errors import InvalidOption
from sparsesmith.families.family import Family
from sparsesmith.families.sddmm import entries
from sparsesmith.families.spmm import balanced, blocks, cells, distinct, resident, rows, splits, tensor_blocks
from sparsesmith.families.spmm import bitmap as spmm_bitmap
from sparsesmith.families.spmm import hubs as spmm_hubs
from sparsesmith.families.spmm import hyb as spmm_hyb
from sparsesmith.families.spmm import packed as spmm_packed
from sparsesmith.families.spmm import structured as spmm_structured
from sparsesmith.families.spmm import tiles as spmm_tiles
from sparsesmith.families.spmv import (
    bitmap,
    block_slices,
    coo,
    csr,
    diagonals,
    hubs,
    hyb,
    merge,
    packed,
    padded,
    panels,
    row_bins,
    rows_staged,
    structured,
    tiles,
)
from sparsesmith.families.spmv_t import gather, scatter
from sparsesmith.families.task import TaskFamily

ENTRY_POINTS = "sparsesmith.families"

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
    *packed.FAMILIES,
    *bitmap.FAMILIES,
    *rows.FAMILIES,
    *balanced.FAMILIES,
    *spmm_structured.FAMILIES,
    *splits.FAMILIES,
    *spmm_tiles.FAMILIES,
    *resident.FAMILIES,
    *blocks.FAMILIES,
    *spmm_hyb.FAMILIES,
    *cells.FAMILIES,
    *spmm_packed.FAMILIES,
    *spmm_hubs.FAMILIES,
    *distinct.FAMILIES,
    *tensor_blocks.FAMILIES,
    *spmm_bitmap.FAMILIES,
    *scatter.FAMILIES,
    *gather.FAMILIES,
    *entries.FAMILIES,
)


AnyFamily = Family | TaskFamily


def _by_name(families: Iterable[AnyFamily]) -> Mapping[str, AnyFamily]:
    """Raises InvalidOption where two have one name."""
    found: dict[str, AnyFamily] = {}
    for family in families:
        if family.name in found:
            raise InvalidOption(f"two families are called {family.name}", field="family", value=family.name)
        found[family.name] = family
    return found


def _registered() -> Iterable[AnyFamily]:
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        yield from entry.load()


_ALL = _by_name([*_LISTED, *_registered()])

FAMILIES: Mapping[str, Family] = {name: each for name, each in _ALL.items() if isinstance(each, Family)}
"""Of operations on a matrix. Spmv families first, then those of spmm, then registered ones: the numbers of a cost
model's words count from their order."""

REORDERING = frozenset(name for name, family in FAMILIES.items() if family.reorders)
"""Of those, the ones that multiply with rows and columns in another order."""

TASK_FAMILIES: Mapping[str, TaskFamily] = {name: each for name, each in _ALL.items() if isinstance(each, TaskFamily)}
"""Of tasks."""
