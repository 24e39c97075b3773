"""Builds libsparsesmith_op with the system's C compiler: `python -m sparsesmith.operator.native.build [FOLDER]`.

No CUDA toolkit is needed. Without FOLDER it goes to the user's cache, under a name of its sources' digest, where
Python's operator looks for it.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from sparsesmith.errors import Unavailable

SOURCES = Path(__file__).parent
NAME = "libsparsesmith_op.so"
FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{NAME}")
_FILES = ("sparsesmith_op.c", "sparsesmith_op.h")


def build(folder: Path) -> Path:
    """Compiles it into a folder, whole or not at all. `CC` names another compiler. Raises Unavailable without one, or
    with its words."""
    compiler = c_compiler()
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as apart:
        built = Path(apart) / NAME
        command = [*compiler, *FLAGS, "-o", str(built), str(SOURCES / "sparsesmith_op.c"), "-ldl", "-lpthread"]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise Unavailable(f"building libsparsesmith_op: {error}") from error
        if ran.returncode:
            raise Unavailable(f"building libsparsesmith_op: {ran.stderr[-2000:]}")
        built.replace(folder / NAME)
    return folder / NAME


def c_compiler() -> list[str]:
    """The command. Raises Unavailable without one."""
    found = (
        shlex.split(os.environ.get("CC", ""))
        or [path for path in map(shutil.which, ("cc", "gcc", "clang")) if path is not None][:1]
    )
    if not found:
        raise Unavailable("building libsparsesmith_op needs a C compiler: cc, gcc or clang, or CC")
    return found


def cache_folder() -> Path:
    """Of this release's sources, in XDG_CACHE_HOME or ~/.cache."""
    digest = hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in _FILES)).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "sparsesmith" / "native" / digest


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else cache_folder()))
