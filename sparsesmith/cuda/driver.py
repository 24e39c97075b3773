"""Launches that CuPy does not offer, through the CUDA driver itself.

Source: CUDA driver API, "Execution Control", cuLaunchKernelEx; CUDA programming guide, "Programmatic dependent launch".
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

Dimensions = tuple[int, int, int]

_PROGRAMMATIC_STREAM_SERIALIZATION = 6
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"""


class LaunchFailed(Exception):
    """The driver refused a launch. `status` is its CUresult."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the CUDA driver refused the launch with status {status}")
        self.status = status


class KernelArguments:
    """The argument block of a launch: ints and device addresses, kept alive as long as this object."""

    def __init__(self, arguments: Sequence[int | ctypes.c_int | ctypes.c_double | ctypes.c_uint64]) -> None:
        self._values = [ctypes.c_uint64(argument) if isinstance(argument, int) else argument for argument in arguments]
        self._pointers = (ctypes.c_void_p * max(len(self._values), 1))(
            *(ctypes.addressof(value) for value in self._values)
        )

    @property
    def address(self) -> int:
        """Address of the array of pointers that the driver takes."""
        return ctypes.addressof(self._pointers)


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an identifier and a union of 64 bytes."""

    _fields_ = (
        ("identifier", ctypes.c_int),
        ("padding", ctypes.c_byte * 4),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_byte * 60),
    )


class _Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("num_attributes", ctypes.c_uint),
    )


class ProgrammaticLaunch:
    """A kernel that may start while the kernel before it on the stream drains; put on a stream as often as wanted."""

    def __init__(
        self, function: int, grid: Dimensions, block: Dimensions, shared_bytes: int, arguments: KernelArguments
    ) -> None:
        """`function`: CUfunction."""
        self._arguments = arguments
        self._attribute = _Attribute(identifier=_PROGRAMMATIC_STREAM_SERIALIZATION, value=1)
        extents = ((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block))
        self._configuration = _Configuration(*extents, shared_bytes, None, ctypes.pointer(self._attribute), 1)
        self._passed = (
            ctypes.byref(self._configuration),
            ctypes.c_void_p(function),
            ctypes.c_void_p(arguments.address),
            None,
        )

    def enqueue(self, stream: int) -> None:
        """Raises LaunchFailed."""
        self._configuration.stream = stream
        status = _driver().cuLaunchKernelEx(*self._passed)
        if status:
            raise LaunchFailed(status)


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")
