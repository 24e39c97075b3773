"""Operations: what a kernel computes, one folder each. Others register theirs by an entry point."""

from sparsesmith.operations.catalogue import check_axes, operation_named, operations
from sparsesmith.operations.operand import Operand, Sizes
from sparsesmith.operations.operation import Operation
from sparsesmith.operations.problem import Problem

__all__ = ["Operand", "Operation", "Problem", "Sizes", "check_axes", "operation_named", "operations"]
