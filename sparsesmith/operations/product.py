"""Products of a sparse matrix with dense operands: what spmv and spmm have in common."""

from collections.abc import Mapping
from dataclasses import dataclass

from sparsesmith.operations.operand import Operand


@dataclass(frozen=True)
class SparseProduct:
    """A linear operation; implements the Operation protocol."""

    name: str
    version: int
    header_id: int
    formula: str
    axes: tuple[str, ...]
    operands: tuple[Operand, ...]
    programs: Mapping[str, str]
    naive: str
