"""glibc's heap, told to give back what large requests have freed. Elsewhere nothing is done."""

import ctypes
import sys
from functools import cache

_MMAP_THRESHOLD = -3
_ARENA_MAX = -8
"""Names of options as <malloc.h> has them."""

MMAP_BYTES = 2**20
"""Blocks from this size on have pages of their own, which go when the block is freed. Unless fixed, it grows."""

NUM_ARENAS = 2
"""Otherwise each of many threads keeps freed memory of its own."""


def configure_heap() -> None:
    """To be called before there are threads."""
    glibc = _glibc()
    if glibc is not None:
        glibc.mallopt(_MMAP_THRESHOLD, MMAP_BYTES)
        glibc.mallopt(_ARENA_MAX, NUM_ARENAS)


def trim_heap() -> None:
    """Gives back pages that hold nothing any more."""
    glibc = _glibc()
    if glibc is not None:
        glibc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if library is not None and hasattr(library, "malloc_trim") else None
