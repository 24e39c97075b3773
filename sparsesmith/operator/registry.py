"""Operators by number, for callers that can hand on numbers and arrays only. A number lives as long as its operator."""

from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from sparsesmith.errors import Conflict

if TYPE_CHECKING:
    from sparsesmith.operator.operator import Bound

_NUMBERS = count(1)
_BOUND: "WeakValueDictionary[int, Bound]" = WeakValueDictionary()
_PATTERNS: "WeakKeyDictionary[Bound, dict[str, tuple[Any, Any]]]" = WeakKeyDictionary()


def new_handle(bound: "Bound") -> int:
    """Never given twice in a process."""
    handle = next(_NUMBERS)
    _BOUND[handle] = bound
    return handle


def registered(handle: int) -> "Bound":
    """What operator and views of a number share. Raises Conflict where it is gone."""
    bound = _BOUND.get(handle)
    if bound is None:
        raise Conflict(f"operator: number {handle} is of none that is alive", field="operator", value=handle)
    return bound


def pattern_of(handle: int, device: Any) -> tuple[Any, Any]:
    """Row and column of each nonzero, as tensors on a device of torch; held for as long as the operator lives."""
    import torch

    bound = registered(handle)
    held = _PATTERNS.setdefault(bound, {})
    if str(device) not in held:
        rows = np.repeat(np.arange(bound.extents[0]), np.diff(bound.matrix.indptr))
        columns = bound.matrix.indices.astype(np.int64)
        held[str(device)] = torch.as_tensor(rows, device=device), torch.as_tensor(columns, device=device)
    return held[str(device)]
