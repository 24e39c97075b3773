"""What a request fixes: an operation and its sizes, on a matrix or on none."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from sparsesmith.elements import ELEMENTS
from sparsesmith.errors import InvalidOption
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith.operations.catalogue import check_workload, operation_named
from sparsesmith.operations.operand import Operand, Sizes
from sparsesmith.operations.operation import Floor, Operation, task_sizes
from sparsesmith.operations.product import TransposedProduct
from sparsesmith.operations.scaled import scaled
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType


@dataclass(frozen=True, eq=False)
class Problem:
    """A workload with the data that it names. Equal workloads are equal problems."""

    workload: Workload
    matrix: Pattern | None = None
    """None: a task without a matrix."""
    values: FixedValues | None = None
    """Of the matrix, where the workload fixes them."""

    def __post_init__(self) -> None:
        """Raises InvalidOption where the workload is none of its operation's."""
        check_workload(self.workload)
        if (self.matrix is None) != (self.workload.pattern is None):
            given = "none" if self.matrix is None else "a pattern"
            raise InvalidOption(f"pattern: {given} for a workload that says otherwise", field="pattern", value=given)

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the fields: operations, which hold functions, do not travel between processes."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def operation(self) -> Operation:
        named = operation_named(self.workload.operation)
        return scaled(named) if self.workload.alpha_beta else named

    @cached_property
    def unscaled(self) -> "Problem":
        """The same with y = A x: what programs compute, whatever becomes of what they store."""
        if not self.workload.alpha_beta:
            return self
        return replace(self, workload=self.workload.model_copy(update={"alpha_beta": False}))

    @cached_property
    def copied(self) -> "Problem":
        """The same from a copy of A^T, where this one multiplies with it from A as it is stored; else this one."""
        operation = operation_named(self.workload.operation)
        if not isinstance(operation, TransposedProduct):
            return self
        pattern, order = self.pattern.transposed
        values = None if self.values is None else FixedValues(self.values.array[order])
        digests = {"pattern": pattern.digest, "values": None if values is None else values.digest}
        return Problem(self.workload.model_copy(update={"operation": operation.of, **digests}), pattern, values)

    @property
    def element_type(self) -> ElementType:
        return self.workload.element_type

    @property
    def pattern(self) -> Pattern:
        """Of a problem that has one. Raises TypeError."""
        if self.matrix is None:
            raise TypeError(f"{self.workload.operation} has no matrix")
        return self.matrix

    @cached_property
    def sizes(self) -> Sizes:
        """Every size by the name that launch expressions and shapes use."""
        axes = self.workload.axes
        if self.matrix is None:
            return task_sizes(self.operation, axes)
        return {
            "num_rows": self.matrix.num_rows,
            "num_cols": self.matrix.num_cols,
            "nnz": self.matrix.nnz,
            "num_dense_cols": self.workload.num_dense_cols,
            **axes,
        }

    @property
    def nnz(self) -> int:
        """0: there is no matrix."""
        return 0 if self.matrix is None else self.matrix.nnz

    @cached_property
    def floor(self) -> Floor:
        """What no correct program avoids."""
        return self.operation.floor(self)

    @property
    def num_products(self) -> int:
        """Multiply-adds, or what else takes as long."""
        return max(1, self.floor.flops // 2)

    @property
    def arrays(self) -> tuple[Operand, ...]:
        """The operands that are arrays, in order."""
        return tuple(operand for operand in self.operation.operands if operand.role != "size")

    @property
    def num_elements(self) -> int:
        """Of all operands."""
        return sum(operand.num_elements(self.sizes) for operand in self.arrays)

    @property
    def num_results(self) -> int:
        """Elements that a program must write."""
        return sum(each.num_elements(self.sizes) for each in self.arrays if each.role in ("output", "inout"))

    @property
    def operand_bytes(self) -> int:
        """Device memory of all operands, the matrix not counted."""
        return sum(operand.num_bytes(self.sizes, self.element_type) for operand in self.arrays)

    @property
    def compared_bytes(self) -> int:
        """Of the matrix in CSR with 32-bit indices, values included; of a task, of its operands."""
        if self.matrix is None:
            return self.operand_bytes
        value_bytes = ELEMENTS[self.element_type].num_bytes
        return 4 * (self.matrix.num_rows + 1) + (4 + value_bytes) * self.matrix.nnz
