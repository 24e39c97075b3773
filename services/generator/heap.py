"""Freed memory back to the operating system."""

import ctypes
import sys
from functools import cache
from typing import Any


def trim_heap() -> None:
    """Without this, glibc keeps what a large request has freed for the next one. Elsewhere it does nothing."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
