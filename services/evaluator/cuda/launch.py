"""Launching kernels through the CUDA driver: loading, arguments, captured graphs, and which errors end the process.

CUDA is asynchronous: a kernel's illegal access surfaces at the next synchronisation, and from then on every call of the
process fails (a *sticky* error). Such an error is raised as DeviceLost, and the process must end; an error that leaves
the context usable (a launch beyond the limits of the chip) is a LaunchRefused.

What this does not protect against: a kernel that never ends. The parent process watches the clock and kills this one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import cupy
from cupy.cuda import driver, function, runtime

from services.evaluator.device import DeviceLost
from sparsesmith.cuda.driver import KernelArguments, LaunchFailed, ProgrammaticLaunch
from sparsesmith.program.directives import Dependency

STICKY_STATUSES = frozenset(
    {
        46,  # devices unavailable
        201,  # invalid context
        214,  # uncorrectable ECC error
        220,  # NVLink uncorrectable
        226,  # contained ECC or poison
        700,  # illegal address
        702,  # launch timeout
        708,  # primary context active
        709,  # context is destroyed
        710,  # device assert
        714,  # hardware stack error
        715,  # illegal instruction
        716,  # misaligned address
        717,  # invalid address space
        718,  # invalid program counter
        719,  # launch failure
        721,  # tensor memory leak
        908,  # external device failure
        911,  # software validity check failed
        999,  # unknown
    }
)
"""Statuses of CUresult and cudaError_t (equal since CUDA 10.1) after which the context cannot be used."""

MAX_DEFAULT_SHARED_BYTES = 48 * 1024
"""Above this a kernel must be told that it may have more."""


class LaunchRefused(Exception):
    """The driver refused a module or a launch; the context is unharmed."""


@contextmanager
def cuda_errors() -> Iterator[None]:
    """Turns CUDA's errors into DeviceLost or LaunchRefused."""
    try:
        yield
    except (driver.CUDADriverError, runtime.CUDARuntimeError, LaunchFailed) as error:
        if int(error.status) in STICKY_STATUSES:
            raise DeviceLost(str(error)) from error
        raise LaunchRefused(str(error)) from error


@dataclass(frozen=True)
class Launch:
    """One kernel with everything a launch needs."""

    function: int
    """CUfunction."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: KernelArguments
    dependency: Dependency = "full"

    def enqueue(self, stream: int) -> None:
        """Puts the launch on a stream (or into the graph the stream is capturing)."""
        if self.dependency == "programmatic":
            self._programmatic.enqueue(stream)
            return
        driver.launchKernel(
            self.function, *self.grid, *self.block, self.shared_bytes, stream, self.arguments.address, 0
        )

    @cached_property
    def _programmatic(self) -> ProgrammaticLaunch:
        return ProgrammaticLaunch(self.function, self.grid, self.block, self.shared_bytes, self.arguments)


class LoadedModule:
    """Machine code on the device, from a cubin."""

    def __init__(self, cubin: bytes) -> None:
        """Raises LaunchRefused when the driver cannot load it."""
        with cuda_errors():
            self._module = function.Module()
            self._module.load(cubin)

    def function(self, name: str, shared_bytes: int = 0) -> int:
        """The kernel's CUfunction, allowed to use so much dynamic shared memory. Raises LaunchRefused."""
        with cuda_errors():
            pointer = int(driver.moduleGetFunction(int(self._module.ptr), name))
            static_bytes = int(driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, pointer))
            if shared_bytes + static_bytes > MAX_DEFAULT_SHARED_BYTES:
                driver.funcSetAttribute(pointer, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
        return pointer


Enqueue = Callable[[int], None]
"""Puts one launch sequence on a stream."""


class CapturedGraph:
    """An executable CUDA graph of a launch sequence, repeated."""

    def __init__(self, enqueue: Enqueue, repeats: int, stream: "cupy.cuda.Stream") -> None:
        """Raises LaunchRefused when the sequence cannot be captured."""
        self.repeats = repeats
        self._stream = stream
        with cuda_errors():
            self._graph = _captured(enqueue, repeats, stream)
            self._graph.upload(stream)

    def launch(self) -> None:
        """Replays the graph once, asynchronously."""
        self._graph.launch(self._stream)


def _captured(enqueue: Enqueue, repeats: int, stream: "cupy.cuda.Stream") -> "cupy.cuda.Graph":
    stream.begin_capture()
    try:
        for _ in range(repeats):
            enqueue(stream.ptr)
    except BaseException:
        _abandon_capture(stream)
        raise
    return stream.end_capture()


def _abandon_capture(stream: "cupy.cuda.Stream") -> None:
    """Ends a capture that failed; its own error is the consequence of the one being raised."""
    try:
        stream.end_capture()
    except (driver.CUDADriverError, runtime.CUDARuntimeError):
        return
