"""The values of a matrix where a request fixes them: a kernel may then rely on them."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.elements import dtype_of
from sparsesmith.errors import InvalidMatrix
from sparsesmith.matrix.pattern import Int32Array, Pattern
from sparsesmith_proto.message import ElementType

FloatArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class FixedValues:
    """Values in the element type, shape [nnz], in the order of the pattern; finite, no negative zeros."""

    array: FloatArray

    @cached_property
    def digest(self) -> str:
        """SHA-256 over element type and values (little-endian), in hexadecimal."""
        sha = hashlib.sha256(f"sparsesmith-values-1 {self.array.dtype.name} {self.array.size}\n".encode())
        sha.update(np.ascontiguousarray(self.bits, self.bits.dtype.newbyteorder("<")).data.cast("B"))
        return sha.hexdigest()

    @property
    def bits(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        """As whole numbers of the same width."""
        return self.array.view(f"u{self.array.dtype.itemsize}")


def fixed_values(values: npt.ArrayLike, element_type: ElementType) -> FixedValues:
    """Values in CSR order, shape [nnz], rounded to the element type.

    Raises InvalidMatrix for one that is not finite there.
    """
    wide = np.asarray(values, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        array = wide.astype(dtype_of(element_type))
    array += 0  # -0 becomes 0: equal values have equal bits.
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        first = int(bad[0])
        raise InvalidMatrix(
            f"the value of nonzero {first} (in row order) is {wide[first]}: it must be finite in {element_type}",
            field="values",
            value=wide[first],
            limit=f"finite in {element_type}",
        )
    return FixedValues(array)


def values_of_entries(
    pattern: Pattern, rows: Int32Array, cols: Int32Array, values: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Values of a matrix given by its entries in any order, in the order of the pattern; duplicates are added up.

    Raises InvalidMatrix where there is not one value for each entry.
    """
    if values.size != rows.size:
        raise InvalidMatrix(
            f"values has {values.size} entries, row_indices has {rows.size}: they must be equal",
            field="values",
            value=values.size,
            limit=rows.size,
        )
    csr = scipy.sparse.coo_matrix((values, (rows, cols)), shape=(pattern.num_rows, pattern.num_cols)).tocsr()
    csr.sum_duplicates()
    summed: npt.NDArray[np.float64] = csr.data
    return summed
