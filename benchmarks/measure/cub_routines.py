"""CUB's routines, and the driver's copy, on torch's tensors: compiled by nvcc once a machine (under a minute), kept under
`.sparsesmith` by what they were made of."""

import ctypes
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure.nvcc import compile_library, nvcc_command
from benchmarks.origin import ROOT
from sparsesmith.operations.operand import Sizes

SOURCE = Path(__file__).with_name("cub_routines.cu")
KEPT = ROOT / ".sparsesmith"

Tensors = Mapping[str, torch.Tensor]
Prepare = Callable[[Tensors, Sizes], Callable[[], torch.Tensor]]
"""From inputs by name, on a device, to what computes the one result each time it is called."""


@dataclass(frozen=True)
class CubRoutine:
    """A function of the library: temporary storage and its size, inputs, the result, sizes, the stream."""

    name: str
    inputs: tuple[str, ...]
    sizes: tuple[str, ...]
    result: tuple[str, ...]
    """Its shape, by names of sizes."""

    def prepared(self, given: Tensors, sizes: Sizes) -> Callable[[], torch.Tensor]:
        """Raises NoNvcc, RuntimeError."""
        return self.prepared_in(library(), given, sizes)

    def prepared_in(self, found: ctypes.CDLL, given: Tensors, sizes: Sizes) -> Callable[[], torch.Tensor]:
        """Results and temporary storage are torch's, so that a graph that is captured may hold them."""
        function = getattr(found, self.name)
        inputs = [given[name].contiguous() for name in self.inputs]
        shape = [sizes[name] for name in self.result]

        def call() -> torch.Tensor:
            out = torch.empty(shape, dtype=inputs[0].dtype, device=inputs[0].device)
            arrays = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*inputs, out)]
            numbers = [ctypes.c_int(sizes[name]) for name in self.sizes]
            rest = (*arrays, *numbers, ctypes.c_void_p(stream_of(out)))
            num_bytes = ctypes.c_size_t(0)
            _check(function(None, ctypes.byref(num_bytes), *rest), self.name)
            scratch = torch.empty(max(1, num_bytes.value), dtype=torch.uint8, device=out.device)
            _check(function(ctypes.c_void_p(scratch.data_ptr()), ctypes.byref(num_bytes), *rest), self.name)
            return out

        return call


CUB: Mapping[str, CubRoutine] = {
    "sum": CubRoutine("cub_sum", ("x",), ("n",), ()),
    "dot": CubRoutine("cub_dot", ("x", "y"), ("n",), ()),
    "mse": CubRoutine("cub_mse", ("x", "y"), ("n",), ()),
    "monte_carlo": CubRoutine("cub_monte_carlo", ("values",), ("n",), ()),
    "prefix_sum": CubRoutine("cub_prefix_sum", ("x",), ("n",), ("n",)),
    "sort": CubRoutine("cub_sort", ("x",), ("n",), ("n",)),
    "top_k": CubRoutine("cub_top_k", ("x",), ("n", "k"), ("k",)),
    "histogram": CubRoutine("cub_histogram", ("keys",), ("n", "bins"), ("bins",)),
}
"""By task."""
MEMCPY: Mapping[str, CubRoutine] = {"copy": CubRoutine("driver_copy", ("x",), ("rows", "cols"), ("rows", "cols"))}


@cache
def library() -> ctypes.CDLL:
    """For the GPU at hand. Raises NoNvcc."""
    major, minor = torch.cuda.get_device_capability()
    return ctypes.CDLL(str(built(KEPT, f"sm_{major}{minor}")))


def built(into: Path, architecture: str) -> Path:
    """The library, compiled unless it was before. Raises NoNvcc."""
    command = nvcc_command(architecture)
    made_of = SOURCE.read_bytes() + repr(command).encode()
    target = into / f"cub-{hashlib.sha256(made_of).hexdigest()[:16]}.so"
    if not target.exists():
        compile_library(command, [SOURCE], target)
    return target


def stream_of(tensor: torch.Tensor) -> int:
    """The handle of the stream that PyTorch works on; 0 for tensors of the host."""
    cuda: Any = torch.cuda
    return int(cuda.current_stream(tensor.device).cuda_stream) if tensor.is_cuda else 0


def _check(status: int, name: str) -> None:
    if status:
        raise RuntimeError(f"{name}: CUDA's runtime says {status}")
