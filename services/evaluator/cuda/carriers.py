"""What element types are in arrays of CuPy: bfloat16, which not every CuPy knows, is carried as its 16 bits (needs no
device)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sparsesmith.elements import dtype_of
from sparsesmith_proto.message import ElementType

CARRIED: ElementType = "bfloat16"
CARRIER = np.dtype(np.uint16)
"""No operand is of this type otherwise."""

NARROW = ("float16", CARRIED)
"""What our kernels alone widen and round to, on a device."""


def carrier_of(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The type of a device array of such elements: NumPy's, or an element type by name."""
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    return CARRIER if name == CARRIED else np.dtype(dtype)


def carried(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A host array as CuPy takes it; no copy."""
    return array.view(CARRIER) if array.dtype.name == CARRIED else array


def uncarried(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A host array of an operand's elements, copied from the device, in the type that they are; no copy."""
    return array.view(dtype_of(CARRIED)) if array.dtype == CARRIER else array


def element_name(dtype: "np.dtype[Any]") -> str:
    """Of the elements of an operand's device array, as our kernels are named by it."""
    return CARRIED if dtype == CARRIER else dtype.name
