"""Formats built on the GPU: the machine behind `sparsesmith.formats.on_device`.

What is built stays on the device for the programs; the host keeps an outline (`layout_cache`), and builds it itself
where a kernel has damaged it.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from services.evaluator.cuda.launch import Launch, cuda_errors
from sparsesmith.cuda.driver import KernelArguments
from sparsesmith.cuda.options import CODE_OPTIONS
from sparsesmith.formats.format import Layout
from sparsesmith.formats.on_device.machine import BLOCK, SOURCE

MIN_NNZ = 100_000
"""Smaller matrices take a CPU about as long as some tens of launches take."""


class CudaMachine:
    """Implements Machine on a stream. Its kernels are compiled once a process; CuPy keeps the machine code on disk."""

    def __init__(self, stream: "cupy.cuda.Stream") -> None:
        self._stream = stream
        self._functions: dict[str, int] = {}

    @cached_property
    def _module(self) -> "cupy.RawModule":
        return cupy.RawModule(code=SOURCE.read_text(encoding="utf-8"), options=CODE_OPTIONS)

    def upload(self, array: npt.NDArray[np.generic]) -> "cupy.ndarray":
        with cuda_errors():
            return cupy.asarray(np.ascontiguousarray(array))

    def empty(self, length: int, dtype: type[np.generic]) -> "cupy.ndarray":
        with cuda_errors():
            return cupy.empty(length, dtype)

    def download(self, array: "cupy.ndarray") -> npt.NDArray[Any]:
        with cuda_errors():
            host: npt.NDArray[Any] = array.get(stream=self._stream)
        return host

    def launch(self, kernel: str, num_threads: int, arguments: Sequence["cupy.ndarray | int"]) -> None:
        if kernel not in self._functions:
            self._functions[kernel] = int(self._module.get_function(kernel).kernel.ptr)
        passed = [ctypes.c_int(each) if isinstance(each, int) else int(each.data.ptr) for each in arguments]
        grid = (-(-num_threads // BLOCK), 1, 1)
        with cuda_errors():
            launch = Launch(self._functions[kernel], grid, (BLOCK, 1, 1), 0, KernelArguments(passed))
            launch.enqueue(self._stream.ptr)


def host_copy(layout: Layout, machine: CudaMachine) -> Layout:
    """The same with its arrays on the host."""
    sources = None if layout.value_sources is None else machine.download(layout.value_sources)
    indices = {name: machine.download(array) for name, array in layout.indices.items()}
    return replace(layout, indices=indices, value_sources=sources)
