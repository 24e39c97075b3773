"""y = |A| x: an operation that another package brings, in a folder of its own."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sparsesmith.operations import Operand, Problem
from sparsesmith.operations.operation import Arrays, Drawing, Expected, Floor
from sparsesmith.operations.product import product_floor
from sparsesmith.operations.sums import error_bound, product
from sparsesmith.operations.texts import program_texts


@dataclass(frozen=True)
class AbsoluteProduct:
    name: str = "absolute_product"
    version: int = 1
    header_id: int = 31
    formula: str = "y = |A| x"
    takes_matrix: bool = True
    axes: tuple[str, ...] = ()
    operands: tuple[Operand, ...] = (
        Operand("x", "input", ("num_cols",), meaning="dense vector, length num_cols"),
        Operand("y", "output", ("num_rows",), meaning="dense vector, length num_rows; garbage at the start"),
    )
    sums_products: bool = True
    naive: str = "thread_a_row"

    @property
    def programs(self) -> Mapping[str, str]:
        return program_texts(__name__, "thread_a_row")

    @property
    def draws(self) -> Mapping[str, Drawing]:
        return {}

    @property
    def trial(self) -> Mapping[str, int]:
        return {}

    def expect(self, problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
        reference, magnitude = product(problem.pattern, np.abs(inputs["values"]), inputs["x"])
        return {"y": Expected(reference, magnitude, error_bound(problem.pattern, magnitude, problem.element_type))}

    def floor(self, problem: Problem) -> Floor:
        return product_floor(problem)


OPERATION = AbsoluteProduct()
