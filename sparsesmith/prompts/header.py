"""The header of a prompt: ids of operation, element type, dense columns and architecture, handed out once and for all.

Every kind of id has room that is not used yet, so that a new operation, element type or architecture fits the weights
that were trained before it.
"""

import numpy as np
import numpy.typing as npt

from sparsesmith.elements import ELEMENTS, RESERVED_ELEMENT_IDS
from sparsesmith.operations import operation_named
from sparsesmith.operations.operation import RESERVED_OPERATION_IDS
from sparsesmith_proto.message import ElementType

IntArray = npt.NDArray[np.int64]

ARCHITECTURES: tuple[str, ...] = (
    "other",
    "sm_70",
    "sm_75",
    "sm_80",
    "sm_86",
    "sm_89",
    "sm_90",
    "sm_100",
    "sm_103",
    "sm_120",
)
"""An architecture's place is its id: append, never insert."""
RESERVED_ARCHITECTURE_IDS = 32
MAX_DENSE_COLS_BUCKET = 10
"""Buckets are the rounded-up base-2 logarithm of num_dense_cols."""

HEADER_SIZES = (RESERVED_OPERATION_IDS, RESERVED_ELEMENT_IDS, MAX_DENSE_COLS_BUCKET + 1, RESERVED_ARCHITECTURE_IDS)
"""Room for the values of each header id."""

FIRST_HEADER_SIZES = (2, 2, 11, 10)
"""Of policies that were trained before ids were reserved."""


def header(operation: str, element_type: ElementType, num_dense_cols: int, architecture: str) -> IntArray:
    """Ids of the header tokens, shape [4]. An architecture that is not listed counts as `other`."""
    name = architecture.rstrip("a")
    bucket = min(MAX_DENSE_COLS_BUCKET, (num_dense_cols - 1).bit_length())
    known = ARCHITECTURES.index(name) if name in ARCHITECTURES else 0
    return np.array([operation_named(operation).header_id, ELEMENTS[element_type].header_id, bucket, known], np.int64)


def rows_of_first_table() -> IntArray:
    """Where each row of a table of FIRST_HEADER_SIZES stands in today's."""
    starts = np.cumsum([0, *HEADER_SIZES[:-1]])
    return np.concatenate([start + np.arange(size) for start, size in zip(starts, FIRST_HEADER_SIZES, strict=True)])
