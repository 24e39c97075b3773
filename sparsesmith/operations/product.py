"""Products of a sparse matrix with dense operands: what spmv and spmm have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.elements import ELEMENTS
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Arrays, Drawing, Expected, Floor
from sparsesmith.operations.sums import error_bound, product, stored_bound

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


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
    draws: Mapping[str, Drawing] = field(default_factory=dict)
    takes_matrix: bool = True
    transposed: str | None = None
    """The operation that computes the same with A^T, from A as it is stored; None: there is none."""

    @property
    def trial(self) -> Mapping[str, int]:
        """See Operation.trial."""
        return dict.fromkeys(self.axes, 3)

    def expect(self, problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
        """See Operation.expect."""
        pattern = problem.pattern
        (dense,) = (inputs[operand.name] for operand in self.operands if operand.role == "input")
        (output,) = (operand.name for operand in self.operands if operand.role == "output")
        reference, magnitude = product(pattern, inputs["values"], dense)
        bound = stored_bound(error_bound(pattern, magnitude, problem.element_type), reference, problem.element_type)
        return {output: Expected(reference, magnitude, bound)}

    def floor(self, problem: Problem) -> Floor:
        """See Operation.floor."""
        return product_floor(problem)


@dataclass(frozen=True)
class TransposedProduct(SparseProduct):
    """A^T times a dense operand, of A as it is stored."""

    of: str = "spmv"
    """The operation that computes the same from a copy of A^T."""

    def expect(self, problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
        """See Operation.expect."""
        copied = problem.copied
        return copied.operation.expect(copied, of_copy(problem, inputs))

    def floor(self, problem: Problem) -> Floor:
        """See Operation.floor."""
        return problem.copied.floor


def of_copy(problem: Problem, inputs: Arrays) -> Arrays:
    """Inputs as a copy of A^T has them: values in its order."""
    _, order = problem.pattern.transposed
    return {**inputs, "values": inputs["values"][order]}


def of_stored(problem: Problem, inputs: Arrays) -> Arrays:
    """The inverse of `of_copy`."""
    _, order = problem.pattern.transposed
    values = np.empty_like(inputs["values"])
    values[order] = inputs["values"]
    return {**inputs, "values": values}


def product_floor(problem: Problem) -> Floor:
    """Of A times a dense operand: values unless they are fixed, rows of the operand that are used, and the result."""
    pattern, columns = problem.pattern, problem.sizes["num_dense_cols"]
    used_columns = int(np.count_nonzero(np.bincount(pattern.col_indices, minlength=pattern.num_cols)))
    # Fixed values may stand in the program.
    value_elements = pattern.nnz if problem.values is None else 0
    elements = value_elements + (pattern.num_rows + used_columns) * columns
    return Floor(elements * ELEMENTS[problem.element_type].num_bytes, 2 * pattern.nnz * columns)
