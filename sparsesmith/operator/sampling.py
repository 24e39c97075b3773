"""Sampled products of torch's tensors on a GPU, by a kernel of our own where there is one."""

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sparsesmith.artifacts.launcher import device_operand, import_cupy, stream_of
from sparsesmith.artifacts.sampling import OPERATION, SampledLauncher
from sparsesmith.errors import Unavailable
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import operation_named
from sparsesmith.operations.texts import element_types_of
from sparsesmith.operator.arrays import type_name
from sparsesmith.operator.registry import registered

if TYPE_CHECKING:
    from sparsesmith.operator.operator import Bound

_Key = tuple[int, int]
"""Index of the device, columns."""
_LAUNCHERS: "WeakKeyDictionary[Bound, dict[_Key, SampledLauncher]]" = WeakKeyDictionary()


def sampled_by_kernel(handle: int, y: Any, x: Any) -> Any:
    """For each nonzero (i, j) of A the sum over columns of y[i] x[j], a tensor beside x.

    None where no kernel computes it: without CuPy, of 16-bit numbers, of nothing.
    """
    bound = registered(handle)
    types = element_types_of(operation_named(OPERATION))
    if bound.element_type not in types or {type_name(y), type_name(x)} != {bound.element_type}:
        return None
    if y.device != x.device or not y.is_cuda or not y.numel() or not bound.extents[2]:
        return None
    try:
        cupy = import_cupy()
    except Unavailable:
        return None
    with cupy.cuda.Device(y.device.index), stream_of(y, cupy):
        z = x.new_empty((bound.extents[2],))
        given = (device_operand(each.contiguous(), cupy, tuple(each.shape), bound.element_type) for each in (y, x, z))
        _launcher(bound, y)(*given)
    return z


def _launcher(bound: "Bound", y: Any) -> SampledLauncher:
    """Compiled at the first product of so many columns on a device."""
    held = _LAUNCHERS.setdefault(bound, {})
    key = (y.device.index, int(y.shape[1]) if y.ndim == 2 else 1)
    if key not in held:
        held[key] = SampledLauncher(pattern_from_scipy(bound.matrix), bound.element_type, key[1])
    return held[key]
