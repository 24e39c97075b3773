"""z_ij = u_i v_j at each nonzero (i, j) of A, u_i and v_j rows of dense matrices: a sampled product of the two.

The gradient of y = A x by the values of A is of this kind: u are the gradients by y, v is x.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.elements import ELEMENTS
from sparsesmith.operations.bounds import scaled, smallest
from sparsesmith.operations.operand import Operand
from sparsesmith.operations.operation import Array, Arrays, Drawing, Expected, Float64Array, Floor
from sparsesmith.operations.sums import limit_to_largest
from sparsesmith.operations.texts import program_texts

if TYPE_CHECKING:
    from sparsesmith.matrix.pattern import Pattern
    from sparsesmith.operations.problem import Problem

__all__ = ["SDDMM"]

_COLUMNS = "num_dense_cols"


@dataclass(frozen=True)
class SampledProduct:
    """Implements the Operation protocol. The values of A are not read."""

    operands: tuple[Operand, ...]
    programs: Mapping[str, str]
    naive: str
    name: str = "sddmm"
    version: int = 1
    header_id: int = 3
    formula: str = "z_ij = u_i v_j at each nonzero (i, j) of A, rows of {num_dense_cols} numbers"
    axes: tuple[str, ...] = (_COLUMNS,)
    takes_matrix: bool = True
    sums_products: bool = False
    draws: Mapping[str, Drawing] = field(default_factory=dict)

    @property
    def trial(self) -> Mapping[str, int]:
        """See Operation.trial."""
        return {_COLUMNS: 3}

    def expect(self, problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
        """See Operation.expect."""
        reference, magnitude, squares = sampled(problem.pattern, inputs["u"], inputs["v"])
        expected = scaled(reference, magnitude, 0.0, problem.sizes[_COLUMNS], problem.element_type)
        limit_to_largest(expected.bound, magnitude, squares, problem.element_type)
        expected.bound[...] = np.maximum(expected.bound, smallest(problem.element_type))
        return {"z": expected}

    def floor(self, problem: Problem) -> Floor:
        """See Operation.floor: rows that are used, read once, and the results."""
        pattern, columns = problem.pattern, problem.sizes[_COLUMNS]
        used_rows = int(np.count_nonzero(pattern.row_lengths))
        used_cols = int(np.count_nonzero(np.bincount(pattern.col_indices, minlength=pattern.num_cols)))
        elements = pattern.nnz + (used_rows + used_cols) * columns
        return Floor(elements * ELEMENTS[problem.element_type].num_bytes, 2 * pattern.nnz * columns)


def sampled(pattern: Pattern, u: Array, v: Array) -> tuple[Float64Array, Float64Array, Float64Array]:
    """(sums, sums of sizes, sums of squares) of u[i] v[j] over the columns, in float64, by nonzero in CSR order."""
    rows, cols = pattern.row_indices(), pattern.col_indices
    sums, sizes, squares = (np.zeros(pattern.nnz) for _ in range(3))
    for left, right in zip(u.T.astype(np.float64), v.T.astype(np.float64), strict=True):
        terms = left[rows] * right[cols]
        sums += terms
        sizes += np.abs(terms)
        squares += np.square(terms)
    return sums, sizes, squares


SDDMM = SampledProduct(
    operands=(
        Operand("u", "input", ("num_rows", _COLUMNS), meaning="dense matrix, row-major, num_rows by num_dense_cols"),
        Operand("v", "input", ("num_cols", _COLUMNS), meaning="dense matrix, row-major, num_cols by num_dense_cols"),
        Operand("z", "output", ("nnz",), meaning="a number for each nonzero in CSR order; garbage at the start"),
        Operand(_COLUMNS, "size", meaning="columns of u and v"),
    ),
    programs=program_texts(__name__, "plain_coo_scalar", "plain_csr_vector"),
    naive="plain_coo_scalar",
)
