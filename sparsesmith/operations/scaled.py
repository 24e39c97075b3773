"""y = alpha A x + beta y: what a product becomes where a request asks for it scaled, as solvers call it.

Programs stay those of the product: they compute A x, and what they store is scaled on its way to the output
(`program.epilogue`). So whatever computes the product is a candidate, unless it stores an element twice or reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.elements import ELEMENTS, WIDE_TYPES
from sparsesmith.errors import InvalidOption
from sparsesmith.operations.operation import Array, Arrays, Expected, Floor, Operation
from sparsesmith.operations.product import SparseProduct
from sparsesmith.operations.sums import ROUNDOFF

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem
    from sparsesmith_proto.message import ElementType

ALPHA, BETA = -2.0, 0.5
"""What is graded: powers of two, so that scaling itself rounds nothing; neither is a number that could be left out."""

SCALING_ROUNDOFFS = 2
"""Error in u of the sum of both terms, as a share of their sizes."""


@dataclass(frozen=True)
class ScaledProduct(SparseProduct):
    """A product with its output as an operand that is changed in place."""

    @property
    def output(self) -> str:
        """The name of what is scaled and added to."""
        (name,) = (operand.name for operand in self.operands if operand.role == "inout")
        return name

    def expect(self, problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
        """See Operation.expect."""
        plain = problem.unscaled
        return self.rescaled(plain.operation.expect(plain, inputs), inputs[self.output], problem.element_type)

    def rescaled(
        self, expected: Mapping[str, Expected], before: Array, element_type: ElementType
    ) -> Mapping[str, Expected]:
        """What is right of the output, from what is right of the product and what the output held."""
        product, wide = expected[self.output], before.astype(np.float64)
        reference = ALPHA * product.reference + BETA * wide
        magnitude = abs(ALPHA) * product.magnitude + abs(BETA) * np.abs(wide)
        bound = abs(ALPHA) * product.bound + SCALING_ROUNDOFFS * ROUNDOFF[element_type] * magnitude
        return {self.output: Expected(reference, magnitude, bound)}

    def floor(self, problem: Problem) -> Floor:
        """See Operation.floor: the output is read as well."""
        plain = problem.unscaled.floor
        results = problem.num_results
        return Floor(plain.bytes_moved + results * ELEMENTS[problem.element_type].num_bytes, plain.flops + 3 * results)


def scaled(operation: Operation) -> ScaledProduct:
    """Raises InvalidOption where the operation is no product with a matrix."""
    if not isinstance(operation, SparseProduct):
        reason = f"{operation.name} is no product of a matrix with dense operands that could be scaled"
        raise InvalidOption(f"alpha_beta: {reason}", field="alpha_beta", value=True, limit="false")
    parts = {field.name: getattr(operation, field.name) for field in fields(SparseProduct)}
    result, _, product = operation.formula.partition(" = ")
    term, comma, note = product.partition(",")
    operands = tuple(
        replace(each, role="inout", meaning="what is added to, times beta") if each.role == "output" else each
        for each in operation.operands
    )
    formula = f"{result} = alpha {term} + beta {result}{comma}{note}"
    return ScaledProduct(**{**parts, "formula": formula, "operands": operands})


def check_scaling(operation: Operation, element_type: ElementType) -> None:
    """Raises InvalidOption where results cannot be scaled where they are stored: of what is no product, and of 16 bits,
    whose sums would be rounded twice."""
    scaled(operation)
    if element_type not in WIDE_TYPES:
        limit = ", ".join(WIDE_TYPES)
        reason = f"alpha_beta: results of {element_type} are not scaled where they are stored, those of {limit} are"
        raise InvalidOption(reason, field="alpha_beta", value=True, limit=limit)
