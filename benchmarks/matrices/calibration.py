"""Matrices to learn a GPU by: the kinds that users bring, in sizes from small to large, made here. Deterministic."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.matrices.generated import banded, fem_blocks, power_law, stencil_2d, uniform_rows
from benchmarks.matrices.irregular import neighbours, pruned, web
from sparsesmith.matrix.pattern import Pattern

SEED = 11

KINDS: Mapping[str, Callable[[float], Pattern]] = {
    "stencil": lambda nnz: stencil_2d(int((nnz / 5) ** 0.5), 5),
    "banded": lambda nnz: banded(int(nnz / 17), 8),
    "fem": lambda nnz: fem_blocks(int((nnz / 63) ** 0.5), 3),
    "uniform": lambda nnz: uniform_rows(int(nnz / 16), 16),
    "power_law": lambda nnz: power_law(int(nnz / 10), 10),
    "neighbours": lambda nnz: neighbours(int(nnz / 12), 10, SEED),
    "web": lambda nnz: web(int(nnz / 6), 8, SEED),
    "pruned": lambda nnz: pruned(int((nnz / 0.3) ** 0.5), int((nnz / 0.3) ** 0.5), 0.7, SEED),
}
"""Name -> maker of about so many nonzeros."""


@dataclass(frozen=True)
class Made:
    """A matrix to be made."""

    kind: str
    about_nnz: float

    @property
    def name(self) -> str:
        return f"calibrate_{self.kind}_{self.about_nnz:.0e}"

    def make(self) -> Pattern:
        return KINDS[self.kind](self.about_nnz)


def calibration_set(sizes: Sequence[float], kinds: Sequence[str] = tuple(KINDS)) -> list[Made]:
    """Small ones first."""
    return [Made(kind, nnz) for nnz in sorted(sizes) for kind in kinds]
