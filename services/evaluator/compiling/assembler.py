"""NVIDIA's PTX assembler, `ptxas`, as a child process: from the text that was checked to the code that runs.

It comes with the wheel `nvidia-cuda-nvcc` or a CUDA toolkit, and must be as new as the compiler that wrote the PTX. It
reads hostile input: call it in a process with limits of memory and time (see compiler.py), which its child shares.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparsesmith.cuda.nvrtc import toolkits, wheel_folders

_RELEASE = re.compile(r"release (\d+)\.(\d+)")
_START_LIMIT_S = 30.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class AssemblerNotFound(Exception):
    """No `ptxas` on this machine that is new enough; the message says where it was looked for."""


@dataclass(frozen=True)
class Assembled:
    """What one run of the assembler gave; `cubin` is empty unless it succeeded."""

    succeeded: bool
    log: str
    cubin: bytes


class Assembler:
    """A `ptxas` that was found to work."""

    def __init__(self, path: Path, release: tuple[int, int]) -> None:
        self._path = path
        self.release = release
        """Of CUDA, major and minor."""

    @staticmethod
    def find(oldest: tuple[int, int]) -> Assembler:
        """The first of at least this release, major and minor. Raises AssemblerNotFound."""
        for path in possible_assemblers():
            release = _release(path)
            if release is not None and release >= oldest:
                return Assembler(path, release)
        raise AssemblerNotFound(
            f"no ptxas of CUDA {oldest[0]}.{oldest[1]} or newer in the nvidia-cuda-nvcc wheel, CUDA_HOME, "
            "/usr/local/cuda or PATH"
        )

    def assemble(self, ptx: str, architecture: str) -> Assembled:
        """Machine code of a whole program, with its resources in the log."""
        source, target = os.memfd_create("ptx"), os.memfd_create("cubin")
        try:
            os.write(source, ptx.encode())
            ran = subprocess.run(
                [self._path, *_options(architecture), f"/proc/self/fd/{source}", "-o", f"/proc/self/fd/{target}"],
                pass_fds=(source, target),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                preexec_fn=_end_with_parent,
                check=False,
            )
            log = (ran.stdout + ran.stderr).decode(errors="replace").replace(f"/proc/self/fd/{source}", "kernel.ptx")
            return Assembled(ran.returncode == 0, log, os.pread(target, os.fstat(target).st_size, 0))
        finally:
            os.close(source)
            os.close(target)


def _end_with_parent() -> None:
    """In the child, between fork and exec: a compiler's process that is killed takes its assembler with it."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _options(architecture: str) -> Sequence[str]:
    return (f"--gpu-name={architecture}", "--generate-line-info", "--verbose")


def possible_assemblers() -> Iterator[Path]:
    """Where one may lie, whether there is one or not."""
    for folder in wheel_folders():
        yield folder / "bin" / "ptxas"
    for toolkit in toolkits():
        yield toolkit / "bin" / "ptxas"
    named = shutil.which("ptxas")
    if named is not None:
        yield Path(named)


def _release(path: Path) -> tuple[int, int] | None:
    """Of a program that can be run and says that it is the assembler."""
    try:
        ran = subprocess.run([path, "--version"], capture_output=True, timeout=_START_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _RELEASE.search(ran.stdout.decode(errors="replace"))
    return (int(found[1]), int(found[2])) if found else None
