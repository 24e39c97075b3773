"""Products of a sparse matrix with dense operands: what spmv and spmm have in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Expected
from sparsesmith.operations.sums import error_bound, product, stored_bound
from sparsesmith_proto.message import ElementType


@dataclass(frozen=True)
class SparseProduct:
    """A times one dense operand into one result; implements the Operation protocol."""

    name: str
    version: int
    header_id: int
    formula: str
    axes: tuple[str, ...]
    operands: tuple[Operand, ...]
    programs: Mapping[str, str]
    naive: str
    sums_products: bool = True

    def expect(
        self, pattern: Pattern, inputs: Mapping[str, npt.NDArray[Any]], element_type: ElementType
    ) -> Mapping[str, Expected]:
        """See Operation.expect."""
        (dense,) = (inputs[operand.name] for operand in self.operands if operand.role == "input")
        (output,) = (operand.name for operand in self.operands if operand.role == "output")
        reference, magnitude = product(pattern, inputs["values"], dense)
        bound = stored_bound(error_bound(pattern, magnitude, element_type), reference, element_type)
        return {output: Expected(reference, magnitude, bound)}
