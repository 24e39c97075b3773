"""Root's privileges, of which this software needs none: with them a process reads what Landlock hides."""

import ctypes
import platform

from services.evaluator.confinement.calls import checked, syscall

_CAPSET = {"x86_64": 126, "aarch64": 91}
_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def drop_all() -> None:
    """Of this thread, for good. Raises OSError."""
    number = _CAPSET.get(platform.machine())
    if number is not None:
        nothing = (ctypes.c_uint32 * 6)()
        checked(syscall(number, ctypes.byref(_Header(_VERSION_3, 0)), ctypes.byref(nothing)), "capset")
