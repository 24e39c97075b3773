"""A and A^T as problems of their own: the transposed matrix, its workload, the program for one that nobody tuned."""

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.artifacts.launcher import checked_values
from sparsesmith.formats.values.compressed import build_layout
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.product import TransposedProduct
from sparsesmith.operations.texts import programs_for
from sparsesmith.operator.image import Direction
from sparsesmith.operator.parts import NO_PARTS, Parts
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import Workload

Order = npt.NDArray[np.integer[Any]]
"""For each nonzero of A^T the place of its value among those of A."""


def transposed_matrix(matrix: scipy.sparse.csr_matrix) -> tuple[scipy.sparse.csr_matrix, Order]:
    """A^T in CSR, columns ascending."""
    numbered = scipy.sparse.csr_matrix((np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    places = numbered.T.tocsr()
    places.sort_indices()
    order = places.data
    return scipy.sparse.csr_matrix((matrix.data[order], places.indices, places.indptr), shape=places.shape), order


def transposed_workload(transpose: scipy.sparse.csr_matrix, workload: Workload) -> Workload:
    """That of A for A^T, right for any values."""
    return workload.model_copy(update={"pattern": pattern_from_scipy(transpose).digest, "values": None})


def is_of_stored(workload: Workload) -> bool:
    """Whether a workload of A^T is computed from A as it is stored."""
    return isinstance(operation_named(workload.operation), TransposedProduct)


def plain_program(workload: Workload) -> str:
    """The one that everybody writes first."""
    return next(iter(programs_for(operation_named(workload.operation), workload.element_type).values()))


def direction_of(
    matrix: scipy.sparse.csr_matrix, workload: Workload, text: str, parts: Parts = NO_PARTS, order: Order | None = None
) -> Direction:
    """A program on a matrix; its format is built unless the parts hold it. Raises InvalidProgram, InvalidMatrix."""
    program = parse_program(text, workload.operation, workload.element_type)
    pattern, values = pattern_from_scipy(matrix), checked_values(matrix.data, workload)
    layout = parts.layout or build_layout(program.format, program.parameters, pattern, values)
    return Direction(program, layout, Problem(workload, pattern, values).unscaled, parts.cubin, order)
