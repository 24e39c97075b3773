"""A^T as a problem of its own: of a matrix that is stored for it, or of A as it is stored."""

from sparsesmith.errors import InvalidOption
from sparsesmith.matrix.values import FixedValues
from sparsesmith.operations.catalogue import operation_named
from sparsesmith.operations.problem import Problem
from sparsesmith.operations.product import SparseProduct
from sparsesmith_proto.words import TransposedStorage


def transposed_problem(problem: Problem, storage: TransposedStorage) -> Problem:
    """y = A^T x where the problem is y = A x. Raises InvalidOption where that is no product with a matrix, or none that
    is computed from A's own storage."""
    workload, operation = problem.workload, operation_named(problem.workload.operation)
    if not isinstance(operation, SparseProduct):
        raise _refused("transposed", "yes", f"{operation.name} is no product with a matrix", "no")
    if storage == "shared":
        if operation.transposed is None:
            raise _refused("transposed_storage", storage, f"{operation.name} needs a copy of A^T", "copy")
        return Problem(workload.model_copy(update={"operation": operation.transposed}), problem.matrix, problem.values)
    pattern, order = problem.pattern.transposed
    values = None if problem.values is None else FixedValues(problem.values.array[order])
    digests = {"pattern": pattern.digest, "values": None if values is None else values.digest}
    return Problem(workload.model_copy(update=digests), pattern, values)


def _refused(field: str, value: str, reason: str, limit: str) -> InvalidOption:
    return InvalidOption(f"{field} is {value}: {reason}", field=field, value=value, limit=limit)
