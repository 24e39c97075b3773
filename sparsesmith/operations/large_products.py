"""Matrix products in float64 that references are made of: NumPy's, or where they are large those of a device that an
evaluator has brought.

What a device finds is believed only where a few rows of it, drawn from the operating system's randomness, are what
NumPy finds.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import numpy as np

from sparsesmith.operations.operation import Float64Array

LARGE = 10**9
"""Operations, a multiply-add counting as two."""
LOOKED_AT = 8
"""Rows."""
AGREED = 1e-12
"""Share of the sizes of the terms by which two orders of adding them up in float64 may differ here."""

Multiply = Callable[[Float64Array, Float64Array], Float64Array | None]
"""None: it cannot."""

Ask = Callable[[Callable[[], Float64Array | None]], Float64Array | None]
"""Has a thread that may use the device do it."""

_installed: list[Multiply] = []
_ask: ContextVar[Ask] = ContextVar("ask", default=lambda what: what())


def install(multiply: Multiply) -> None:
    """From here on it is asked for large products of this process."""
    _installed[:] = [multiply]


def uninstall() -> None:
    """NumPy makes all of them again."""
    _installed.clear()


@contextmanager
def asked_through(ask: Ask) -> Iterator[None]:
    """Within, in this thread alone, the device is asked by another one."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def multiplied(a: Float64Array, b: Float64Array) -> Float64Array:
    """a @ b of two matrices. Raises ArithmeticError where the device's is another."""
    if _installed and 2 * a.shape[0] * a.shape[1] * b.shape[1] >= LARGE:
        found = _ask.get()(partial(_installed[0], a, b))
        if found is not None:
            _look_at(a, b, found)
            return found
    product: Float64Array = a @ b
    return product


def _look_at(a: Float64Array, b: Float64Array, found: Float64Array) -> None:
    for row in {secrets.randbelow(a.shape[0]) for _ in range(LOOKED_AT)}:
        apart = np.abs(found[row] - a[row] @ b)
        if not bool((apart <= AGREED * (np.abs(a[row]) @ np.abs(b))).all()):
            raise ArithmeticError(f"row {row} of a product of {a.shape} and {b.shape} is another on the host")
