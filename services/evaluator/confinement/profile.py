"""What a process that handles hostile programs may still do: a compiler, or the one with the device.

Two layers of the kernel's, no privileges, and limits: Landlock (files), seccomp (system calls), `setrlimit`. They hold
whatever the process becomes, beneath the checks of texts and machine code.
"""

import os
import re
import resource
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from services.evaluator.confinement import capabilities, landlock, seccomp

ConfinementOption = Literal["auto", "on", "off"]
"""auto: as far as what runs starts under it. on: else nothing starts."""

MAX_FILE_BYTES = 1 << 30
MAX_OPEN_FILES = 4096
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/opt", "/nix", "/proc", "/sys")
SYSTEM_FILES = (
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/ssl"),
    *("/etc/alternatives", "/etc/OpenCL", "/etc/vulkan", "/etc/nvidia"),
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
LOADER_WITHIN = 4096
"""Of a program: its headers, and the name of its loader."""
GPU_DEVICES = ("nvidia*", "dri")


@dataclass(frozen=True)
class Profile:
    """Rights beyond those that all have: the system's libraries, Python's, and our own code, for reading."""

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    """Folders of its own; the first is where temporary files go."""
    run: tuple[Path, ...] = ()
    """Programs that it may start; none: no process at all."""
    gpu: bool = False
    """The device files of NVIDIA's driver, and the socket that it listens on."""


@dataclass(frozen=True)
class Confinement:
    """What this machine's kernel can hold a process by."""

    landlock: int
    """ABI; 0: none."""
    seccomp: bool

    @property
    def is_whole(self) -> bool:
        return self.landlock > 0 and self.seccomp

    def describe(self) -> str:
        files = f"Landlock (ABI {self.landlock})" if self.landlock else "no Landlock in this kernel: files are not held"
        calls = "seccomp" if self.seccomp else "no seccomp for this architecture: calls are not held"
        return f"{files}, {calls}"


def available() -> Confinement:
    """On this machine."""
    if sys.platform != "linux":
        return Confinement(0, False)
    return Confinement(landlock.version(), seccomp.is_supported())


def confine(profile: Profile) -> None:
    """This process, for good, by what the kernel has. Call it before there are other threads: Landlock holds the
    calling one and those to come. Raises OSError."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    _limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    found = available()
    if found.landlock:
        landlock.allow_only(_rules(profile))
    if found.seccomp:
        seccomp.refuse_calls(may_run=bool(profile.run), may_listen=profile.gpu)
        capabilities.drop_all()
    if profile.write:
        # CuPy compiles by way of a temporary folder, and the system's is closed.
        os.environ["TMPDIR"] = tempfile.tempdir = str(profile.write[0])


def _limit(which: int, most: int) -> None:
    """Lower than it is, never higher."""
    hard = resource.getrlimit(which)[1]
    bound = most if hard == resource.RLIM_INFINITY else min(hard, most)
    resource.setrlimit(which, (bound, bound))


def _rules(profile: Profile) -> list[tuple[Path, int]]:
    readable = [*map(Path, (*SYSTEM_FOLDERS, *SYSTEM_FILES)), *_of_python(), *profile.read]
    rules = [(path, landlock.READ) for path in readable]
    rules += [(Path(path), landlock.DEVICE) for path in DEVICES]
    rules += [(path, landlock.WRITE) for path in profile.write]
    for program in profile.run:
        rules += [(path, landlock.READ | landlock.EXECUTE) for path in (program, *_loader_of(program))]
    if profile.gpu:
        rules += [(path, landlock.DEVICE) for pattern in GPU_DEVICES for path in Path("/dev").glob(pattern)]
        rules.append((Path("/dev/shm"), landlock.WRITE))
        # CUDA's driver (from 570 on) names its threads by /proc/self/task/TID/comm, opened as by `fopen` for writing,
        # and does not initialise (CUDA_ERROR_OPERATING_SYSTEM) where it may not.
        rules.append((Path(f"/proc/{os.getpid()}/task"), landlock.READ | landlock.WRITE_FILE | landlock.TRUNCATE))
    return rules


def _loader_of(program: Path) -> list[Path]:
    """What the kernel runs first for a program that is linked dynamically: the loader that its ELF header names."""
    try:
        text = program.read_bytes()[:LOADER_WITHIN]
    except OSError:
        return []
    found = re.search(rb"/[\w./+-]*/ld[\w.+-]*\.so[\w.]*(?=\0)", text)
    return [] if found is None else [Path(found[0].decode())]


def _of_python() -> list[Path]:
    """The interpreter, folders of the search path with installed packages, and what is imported already. Of other
    folders of that path nothing: a script's own, or ours, may hold a stack's state as well."""
    folders = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix)]
    folders += [path for path in map(Path, filter(None, sys.path)) if any(path.glob("*.dist-info"))]
    for name, module in list(sys.modules.items()):
        if "." not in name:
            folders += map(Path, getattr(module, "__path__", ()))
    return folders
