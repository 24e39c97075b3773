"""A library for ctypes out of CUDA C++: what benchmarks compare with and nobody ships. Needs nvcc and a host compiler."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sparsesmith.cuda.nvrtc import find_include_folders, toolkits, wheel_folders


class NoNvcc(RuntimeError):
    """There is no CUDA compiler, or it refuses."""


def nvcc_command(architecture: str, nvcc: Path | None = None) -> list[str]:
    """It and its options but for sources and target. `nvcc`: the one to take; None: the one that is found. Raises NoNvcc."""
    compiler = _found() if nvcc is None else nvcc.resolve()
    if not compiler.is_file():
        raise NoNvcc(f"there is no nvcc at {nvcc}")
    # Of CUDA's own headers it takes those beside it: of another release they contradict CUB's.
    folders = [compiler.parents[1] / "include" / "cccl", *find_include_folders()]
    headers = [f"-I{folder}" for folder in folders if (folder / "cub").is_dir()][:1]
    libraries = [
        f"-L{compiler.parents[1] / name}" for name in ("lib64", "lib") if (compiler.parents[1] / name).is_dir()
    ]
    options = ["-std=c++17", "-O3", f"-arch={architecture}", "-shared", "-Xcompiler", "-fPIC,-fvisibility=hidden"]
    return [str(compiler), *options, *headers, *libraries]


def compile_library(command: Sequence[str], sources: Sequence[Path], target: Path) -> None:
    """The target is whole or is not there. Raises NoNvcc."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(f".{os.getpid()}")
    ran = subprocess.run(
        [*command, "-o", str(unfinished), *map(str, sources)], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        names = ", ".join(source.name for source in sources)
        raise NoNvcc(f"nvcc does not compile {names}: {ran.stderr.strip()[-1000:]}")
    unfinished.rename(target)


def _found() -> Path:
    """Toolkits first: what their nvcc needs lies beside it."""
    on_path = shutil.which("nvcc")
    beside = [folder / "bin" / "nvcc" for folder in (*toolkits(), *wheel_folders())]
    compilers = [*beside, *([Path(on_path).resolve()] if on_path else [])]
    found = next((path for path in compilers if path.is_file()), None)
    if found is None:
        raise NoNvcc("there is no nvcc: neither in wheels, in CUDA_HOME or /usr/local/cuda, nor on the PATH")
    return found
