"""y = |A| x: an operation that another package brings, in a folder of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Operand
from sparsesmith.operations.operation import Expected
from sparsesmith.operations.sums import error_bound, product
from sparsesmith.operations.texts import program_texts
from sparsesmith_proto.message import ElementType


@dataclass(frozen=True)
class AbsoluteProduct:
    name: str = "absolute_product"
    version: int = 1
    header_id: int = 31
    formula: str = "y = |A| x"
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

    def expect(
        self, pattern: Pattern, inputs: Mapping[str, npt.NDArray[Any]], element_type: ElementType
    ) -> Mapping[str, Expected]:
        reference, magnitude = product(pattern, np.abs(inputs["values"]), inputs["x"])
        return {"y": Expected(reference, magnitude, error_bound(pattern, magnitude, element_type))}


OPERATION = AbsoluteProduct()
