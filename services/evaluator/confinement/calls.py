"""System calls that Python has no functions for."""

import ctypes
import os
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


def syscall(number: int, *arguments: Any) -> int:
    """Its result; -1: see `ctypes.get_errno`. Whole numbers are taken as 64 bits."""
    return int(_LIBC.syscall(ctypes.c_long(number), *(_wide(each) for each in arguments)))


def prctl(option: int, *arguments: int) -> int:
    """Likewise."""
    padded = [*arguments, *[0] * (4 - len(arguments))]
    return int(_LIBC.prctl(ctypes.c_int(option), *(ctypes.c_ulong(each) for each in padded)))


def checked(result: int, what: str) -> int:
    """Raises OSError for -1."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _wide(argument: Any) -> Any:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument
