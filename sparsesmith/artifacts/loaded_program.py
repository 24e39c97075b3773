"""The kernels of a program on the user's own GPU, compiled or loaded once and launched in order."""

import ctypes
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from sparsesmith.cuda.driver import KernelArguments, ProgrammaticLaunch
from sparsesmith.cuda.options import CODE_OPTIONS
from sparsesmith.program.binding import BoundProgram
from sparsesmith.program.directives import ResolvedLaunch
from sparsesmith.program.program import KernelProgram


class LoadedProgram:
    """Of one problem, through CuPy, on the device that is current when it is made."""

    def __init__(self, cupy: Any, program: KernelProgram, bound: BoundProgram, cubin: bytes = b"") -> None:
        """`cubin`: where it is known, nothing is compiled."""
        self._cupy = cupy
        self._kernels = self._loaded(program, bound, cubin)

    def launch(self, arguments: tuple[Any, ...]) -> None:
        """All launches in order, on CuPy's current stream: sizes as NumPy's int32, arrays as CuPy's."""
        for kernel, launch in self._kernels:
            self._launch(kernel, launch, arguments)

    def _loaded(self, program: KernelProgram, bound: BoundProgram, cubin: bytes) -> list[tuple[Any, ResolvedLaunch]]:
        if cubin:
            self._file = NamedTemporaryFile(suffix=".cubin")  # noqa: SIM115  CuPy may read it again.
            self._file.write(cubin)
            self._file.flush()
            module = self._cupy.RawModule(path=self._file.name)
        else:
            module = self._cupy.RawModule(code=program.source, options=CODE_OPTIONS)
        kernels = [(module.get_function(launch.kernel), launch) for launch in bound.launches]
        for kernel, launch in kernels:
            if needed := bound.shared_bytes[launch.kernel]:
                kernel.max_dynamic_shared_size_bytes = needed
        return kernels

    def _launch(self, kernel: Any, launch: ResolvedLaunch, arguments: tuple[Any, ...]) -> None:
        if launch.dependency == "full":
            kernel(launch.grid, launch.block, arguments, shared_mem=launch.shared_bytes)
            return
        passed = KernelArguments([_passed(argument) for argument in arguments])
        stream = self._cupy.cuda.get_current_stream().ptr
        function = int(kernel.kernel.ptr)
        ProgrammaticLaunch(function, launch.grid, launch.block, launch.shared_bytes, passed).enqueue(stream)


def _passed(argument: Any) -> ctypes.c_int | int:
    """An argument as the driver takes it: a number, or the address of an array."""
    return ctypes.c_int(int(argument)) if isinstance(argument, np.integer) else int(argument.data.ptr)
