"""Runs a program once, by the CUDA driver alone: `python -I -S launch.py FOLDER SECONDS`, FOLDER by `launch_plan.py`.

Started by compute-sanitizer in a process of its own, so it imports nothing but Python's own modules. Every buffer is an
allocation of its own: what lies behind one belongs to none. Ends with 0 and a file `ran` in FOLDER once every launch
has ended without an error; else with 1 and the reason on standard error. Launches follow each other whole, also those
with `dependency=programmatic`.
"""

import ctypes
import json
import signal
import sys
from pathlib import Path
from typing import Any

MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""
PLAIN_SHARED_BYTES = 48 * 1024
"""A launch with more asks for it first."""
LEAST_BYTES = 16
"""CUDA allocates no empty buffer."""
PR_SET_PDEATHSIG = 1
RAN = "ran"


class DriverError(Exception):
    """A call of the driver that failed."""


class Driver:
    """libcuda, each call of which raises DriverError where it fails."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def __call__(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'status %d' % status).decode(errors='replace')}")


def run(folder: Path) -> None:
    """Raises DriverError, OSError."""
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    driver, device, context, module = Driver(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    driver("cuInit", 0)
    driver("cuDeviceGet", ctypes.byref(device), 0)
    driver("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver("cuCtxSetCurrent", context)
    driver("cuModuleLoadData", ctypes.byref(module), (folder / "program.cubin").read_bytes())
    addresses = {name: _filled(driver, folder, **buffer) for name, buffer in plan["buffers"].items()}
    values = [
        ctypes.c_int(argument["size"]) if "size" in argument else addresses[argument["buffer"]]
        for argument in plan["arguments"]
    ]
    pointers = (ctypes.c_void_p * max(1, len(values)))(*map(ctypes.addressof, values))
    for launch in plan["launches"]:
        _launch(driver, module, launch, pointers)
    driver("cuCtxSynchronize")
    (folder / RAN).touch()


def _filled(driver: Driver, folder: Path, *, bytes: int, file: str | None) -> ctypes.c_uint64:
    address = ctypes.c_uint64()
    driver("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(LEAST_BYTES, bytes)))
    if file is not None:
        content = (folder / file).read_bytes()
        driver("cuMemcpyHtoD_v2", address, content, ctypes.c_size_t(len(content)))
    return address


def _launch(driver: Driver, module: ctypes.c_void_p, launch: dict[str, Any], pointers: Any) -> None:
    function = ctypes.c_void_p()
    driver("cuModuleGetFunction", ctypes.byref(function), module, launch["kernel"].encode())
    if launch["most_shared_bytes"] > PLAIN_SHARED_BYTES:
        driver("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED_SIZE_BYTES, launch["most_shared_bytes"])
    extents = map(ctypes.c_uint, (*launch["grid"], *launch["block"], launch["shared_bytes"]))
    driver("cuLaunchKernel", function, *extents, None, pointers, None)


def main() -> int:
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.setitimer(signal.ITIMER_REAL, seconds)  # Nobody is left to end it where all others were killed.
    try:
        run(folder)
    except (DriverError, OSError) as error:
        print(f"launch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
