"""What a kernel computes, as a thing: its operands, its sizes, its first programs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations.operand import Operand
from sparsesmith_proto.message import ElementType

Float64Array = npt.NDArray[np.float64]

RESERVED_OPERATION_IDS = 32
"""Ids that a policy keeps room for: a new operation never makes shipped weights unloadable."""


@dataclass(frozen=True, eq=False)
class Expected:
    """What is right of one output; float64, of the output's shape."""

    reference: Float64Array
    magnitude: Float64Array
    """The scale of rounding errors: of a sum, that of the sizes of its terms."""
    bound: Float64Array
    """The largest |output - reference| that is accepted."""


class Operation(Protocol):
    """One operation on a stored sparse matrix A. Implementations are frozen, in a folder of the operation's name."""

    @property
    def name(self) -> str:
        """As requests spell it: lower-case letters, digits and `_`."""
        ...

    @property
    def version(self) -> int:
        """Raised when the same request would mean something else."""
        ...

    @property
    def header_id(self) -> int:
        """Of the operation in prompts: handed out once and for all, below RESERVED_OPERATION_IDS."""
        ...

    @property
    def formula(self) -> str:
        """For prompts, reports, docs and headers: `y = A x`. `{name}` stands for a size of that name."""
        ...

    @property
    def axes(self) -> tuple[str, ...]:
        """Sizes that a request names beside its matrix, of those the wire knows (`num_dense_cols`)."""
        ...

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Behind the head (num_rows, num_cols, nnz) and the format's arguments, in order."""
        ...

    @property
    def sums_products(self) -> bool:
        """Whether each result is a sum of products, but for their signs, of a value of A and an entry of the input.

        Such results are exact on small integers, and rounded once where one product is all of the sum.
        """
        ...

    def expect(
        self, pattern: Pattern, inputs: Mapping[str, npt.NDArray[Any]], element_type: ElementType
    ) -> Mapping[str, Expected]:
        """What is right of each output, by name.

        `inputs` by name, as kernels get them: `values` [nnz] in CSR order, and each input operand in its shape.
        """
        ...

    @property
    def programs(self) -> Mapping[str, str]:
        """The programs that everybody writes first, by name: kernel programs with `T` for the element type.

        The first is what a user gets without choosing.
        """
        ...

    @property
    def naive(self) -> str:
        """The name, among the programs, of the plainest: one thread an output element."""
        ...


def operands_with_role(operation: Operation, *roles: str) -> tuple[Operand, ...]:
    """In order."""
    return tuple(operand for operand in operation.operands if operand.role in roles)
