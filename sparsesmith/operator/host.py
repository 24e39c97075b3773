"""The same products without a GPU: SciPy on the host."""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsesmith.artifacts.launcher import is_torch, sum_type, tensor_of, values_of
from sparsesmith.elements import dtype_of
from sparsesmith.operator.arrays import apart
from sparsesmith.operator.backend import BoundProduct, Scale
from sparsesmith_proto.message import ElementType


class HostBackend:
    """Implements Backend; sums in the type that the kernel sums in. Any number of threads may call it."""

    def __init__(self, matrix: scipy.sparse.csr_matrix, element_type: ElementType) -> None:
        self._element_type = element_type
        self._pattern = matrix.indices, matrix.indptr
        self._shape = matrix.shape
        self.set_values(values_of(matrix, element_type))

    def product(self, x: Any, out: Any, scale: Scale, *, transposed: bool) -> Any:
        """See Backend.product."""
        matrix = self._matrices[transposed]
        result = matrix @ host_array(x, self._element_type).astype(matrix.dtype, copy=False)
        if scale.alpha != 1:
            result *= matrix.dtype.type(scale.alpha)
        if out is None:
            result = result.astype(dtype_of(self._element_type), copy=False)
            return tensor_of(result) if is_torch(x) else result
        target = host_array(out, self._element_type)
        if scale.beta:
            result += matrix.dtype.type(scale.beta) * target.astype(matrix.dtype, copy=False)
        target[...] = result
        return out

    def bound(self, x: Any, out: Any, *, transposed: bool) -> BoundProduct:
        """See Backend.bound."""
        return apart(partial(self.product, transposed=transposed))

    def set_values(self, values: Any) -> None:
        """See Backend.set_values."""
        wide = host_array(values, self._element_type).astype(sum_type(self._element_type))
        matrix = scipy.sparse.csr_matrix((wide, *self._pattern), shape=self._shape)
        self._matrices = matrix, matrix.T

    def values(self) -> npt.NDArray[np.floating[Any]]:
        """See Backend.values."""
        values: npt.NDArray[np.floating[Any]] = self._matrices[0].data.astype(dtype_of(self._element_type))
        return values

    @property
    def device_bytes(self) -> int:
        """See Backend.device_bytes."""
        return 0


def host_array(array: Any, element_type: ElementType) -> npt.NDArray[Any]:
    """An array of any kind on the host, in the element type; shares the array's memory where nothing is converted."""
    if is_torch(array):
        return _of_tensor(array, element_type)
    on_host = array.get() if type(array).__module__.startswith("cupy") else array
    return np.asarray(on_host, dtype_of(element_type))


def _of_tensor(tensor: Any, element_type: ElementType) -> npt.NDArray[Any]:
    import torch

    converted = tensor.detach().to("cpu", getattr(torch, element_type))
    words = converted.view(torch.int16) if element_type == "bfloat16" else converted  # NumPy has no such type.
    array: npt.NDArray[Any] = words.numpy().view(dtype_of(element_type))
    return array
