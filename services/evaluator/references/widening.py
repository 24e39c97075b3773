"""A reference in float64, whatever types its text names."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_CASTS: tuple[Any, ...] = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)


class _Widening(TorchFunctionMode):
    def __torch_function__(
        self, function: Callable[..., Any], types: Sequence[Any], args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in _CASTS:
            return args[0].double()
        named = {name: _widened(value) for name, value in (kwargs or {}).items()}
        return function(*(_widened(value) for value in args), **named)


def _widened(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


@contextmanager
def widened() -> Iterator[None]:
    """Casts to narrower types are casts to float64, and new arrays are made of it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widening():
            yield
    finally:
        torch.set_default_dtype(before)
