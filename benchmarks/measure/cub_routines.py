"""CUB's routines, and the driver's copy, on torch's tensors: compiled by nvcc once a machine (under a minute), kept under
`.sparsesmith` by what they were made of."""

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.origin import ROOT
from sparsesmith.cuda.nvrtc import find_include_folders, toolkits, wheel_folders
from sparsesmith.operations.operand import Sizes

SOURCE = Path(__file__).with_name("cub_routines.cu")
KEPT = ROOT / ".sparsesmith"

Tensors = Mapping[str, torch.Tensor]
Prepare = Callable[[Tensors, Sizes], Callable[[], torch.Tensor]]
"""From inputs by name, on a device, to what computes the one result each time it is called."""


class NoNvcc(RuntimeError):
    """There is no CUDA compiler, or it refuses."""


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
            rest = (*arrays, *numbers, ctypes.c_void_p(_stream_of(out)))
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
    command = _command(architecture)
    made_of = SOURCE.read_bytes() + repr(command).encode()
    target = into / f"cub-{hashlib.sha256(made_of).hexdigest()[:16]}.so"
    if not target.exists():
        into.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(f".{os.getpid()}")
        ran = subprocess.run(
            [*command, "-o", str(unfinished), str(SOURCE)], capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise NoNvcc(f"nvcc does not compile {SOURCE.name}: {ran.stderr.strip()[-1000:]}")
        unfinished.rename(target)
    return target


def _command(architecture: str) -> Sequence[str]:
    compiler = next((path for path in _compilers() if path.is_file()), None)
    if compiler is None:
        raise NoNvcc("there is no nvcc: neither in wheels, in CUDA_HOME or /usr/local/cuda, nor on the PATH")
    # Of CUDA's own headers it takes those beside it: of another release they contradict CUB's.
    folders = [compiler.parents[1] / "include" / "cccl", *find_include_folders()]
    headers = [f"-I{folder}" for folder in folders if (folder / "cub").is_dir()][:1]
    libraries = [
        f"-L{compiler.parents[1] / name}" for name in ("lib64", "lib") if (compiler.parents[1] / name).is_dir()
    ]
    options = ["-std=c++17", "-O3", f"-arch={architecture}", "-shared", "-Xcompiler", "-fPIC,-fvisibility=hidden"]
    return [str(compiler), *options, *headers, *libraries]


def _compilers() -> list[Path]:
    """Toolkits first: what their nvcc needs lies beside it."""
    on_path = shutil.which("nvcc")
    beside = [folder / "bin" / "nvcc" for folder in (*toolkits(), *wheel_folders())]
    return [*beside, *([Path(on_path).resolve()] if on_path else [])]


def _stream_of(tensor: torch.Tensor) -> int:
    cuda: Any = torch.cuda
    return int(cuda.current_stream(tensor.device).cuda_stream) if tensor.is_cuda else 0


def _check(status: int, name: str) -> None:
    if status:
        raise RuntimeError(f"{name}: CUDA's runtime says {status}")
