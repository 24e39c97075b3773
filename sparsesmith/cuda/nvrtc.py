"""NVIDIA's runtime compiler by ctypes: CUDA source to PTX and machine code, without a GPU, a driver or a host compiler.

The library and its headers come from the wheels `nvidia-cuda-nvrtc`, `nvidia-cuda-runtime` and `nvidia-cuda-cccl`, or
from a CUDA toolkit. The compiler is native code: whoever gives it hostile input calls it in a process that may be lost.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparsesmith.cuda.options import CODE_OPTIONS
from sparsesmith.errors import InvalidProgram

PROGRAM_NAME = "kernel.cu"
"""The name of the source in compiler messages."""

_SUCCESS = 0
_TOOLKIT_LIBRARIES = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
_TOOLKIT_HEADERS = ("include", "targets/x86_64-linux/include", "targets/sbsa-linux/include")


class NvrtcNotFound(Exception):
    """No NVRTC library on this machine; the message says where it was looked for."""


@dataclass(frozen=True)
class NvrtcResult:
    """What one compilation gave; `ptx` is empty unless it succeeded, `cubin` unless it was for a real architecture."""

    succeeded: bool
    log: str
    ptx: str
    cubin: bytes = b""


def find_library() -> Path:
    """The NVRTC library: from the Python wheels, else a CUDA toolkit, else the system's search path."""
    for folder in _library_folders():
        found = [
            path
            for path in sorted(folder.glob("libnvrtc.so*"))
            if "alt" not in path.name and "builtins" not in path.name
        ]
        if found:
            return found[-1]
    name = ctypes.util.find_library("nvrtc")
    if name is not None:
        return Path(name)
    raise NvrtcNotFound("libnvrtc was found neither in the nvidia-cuda-nvrtc wheel nor in CUDA_HOME or /usr/local/cuda")


def find_include_folders() -> list[Path]:
    """Folders with CUDA's headers (cuda_fp16.h) and those of CCCL (cub, cuda/std), each once."""
    folders: list[Path] = []
    for wanted in ("cuda_fp16.h", "cuda/std/version"):
        for folder in _header_folders():
            if (folder / wanted).is_file():
                if folder not in folders:
                    folders.append(folder)
                break
    return folders


def wheel_folders() -> Iterator[Path]:
    """Component folders of the `nvidia` namespace package; the newest generation first."""
    specification = importlib.util.find_spec("nvidia")
    if specification is not None:
        for location in specification.submodule_search_locations or ():
            yield from sorted((path for path in Path(location).glob("cu*") if path.is_dir()), reverse=True)


def toolkits() -> Iterator[Path]:
    """Folders of CUDA toolkits."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    yield Path("/usr/local/cuda")


def _library_folders() -> Iterator[Path]:
    for folder in wheel_folders():
        yield folder / "lib"
    for toolkit in toolkits():
        for folder_name in _TOOLKIT_LIBRARIES:
            yield toolkit / folder_name


def _header_folders() -> Iterator[Path]:
    for folder in wheel_folders():
        yield folder / "include"
        yield folder / "include" / "cccl"
    for toolkit in toolkits():
        for folder_name in _TOOLKIT_HEADERS:
            yield toolkit / folder_name
            yield toolkit / folder_name / "cccl"


class Nvrtc:
    """A loaded NVRTC library."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def version(self) -> tuple[int, int]:
        """Major and minor version of the compiler."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return major.value, minor.value

    def compile(self, source: str, options: Sequence[str]) -> NvrtcResult:
        """Compile one source to PTX; a real architecture (`sm_90`) among the options gives machine code as well."""
        program = ctypes.c_void_p()
        name, text = PROGRAM_NAME.encode(), source.encode()
        self._check(self._library.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None))
        try:
            encoded = [option.encode() for option in options]
            array = (ctypes.c_char_p * len(encoded))(*encoded)
            status = self._library.nvrtcCompileProgram(program, len(encoded), array)
            log = self._output(program, "ProgramLog").decode(errors="replace")
            if status != _SUCCESS:
                return NvrtcResult(False, log or self._message(status), "")
            ptx = self._output(program, "PTX").decode(errors="replace")
            return NvrtcResult(True, log, ptx, self._output(program, "CUBIN"))
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _output(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw if what == "CUBIN" else buffer.raw.rstrip(b"\0")

    def _message(self, status: int) -> str:
        text: bytes = self._library.nvrtcGetErrorString(status)
        return text.decode()

    def _check(self, status: int) -> None:
        if status != _SUCCESS:
            raise RuntimeError(f"NVRTC: {self._message(status)}")


def compile_cubin(source: str, architecture: str) -> bytes:
    """Machine code for an architecture (`sm_90`), with the options that every program is compiled with.

    Raises NvrtcNotFound, InvalidProgram with the compiler's log.
    """
    compiler = Nvrtc(find_library())
    folders = (f"-I{folder}" for folder in find_include_folders())
    built = compiler.compile(source, [f"--gpu-architecture={architecture}", *CODE_OPTIONS, *folders])
    if not built.succeeded:
        raise InvalidProgram(f"the program does not compile for {architecture}: {built.log}", field="program")
    return built.cubin
