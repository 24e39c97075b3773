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
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from sparsesmith.errors import Unavailable

SOURCES = Path(__file__).parent
NAME = "libsparsesmith_op.so"
FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")
_FILES = (SOURCES / "sparsesmith_op.c", SOURCES / "sparsesmith_op.h")


def build(folder: Path) -> Path:
    """Compiles it into a folder, whole or not at all. `CC` names another compiler. Raises Unavailable without one, or
    with its words."""
    return compiled(_FILES[0], folder / NAME, "-ldl", "-lpthread")


def compiled(source: Path, library: Path, *options: str) -> Path:
    """A C source as a library of that path; as `build`."""
    compiler, folder, name = c_compiler(), library.parent, library.name
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as apart:
        built = Path(apart) / name
        command = [*compiler, *FLAGS, f"-Wl,-soname,{name}", "-o", str(built), str(source), *options]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise Unavailable(f"building {library.stem}: {error}") from error
        if ran.returncode:
            raise Unavailable(f"building {library.stem}: {ran.stderr[-2000:]}")
        built.replace(library)
    return library


def c_compiler() -> list[str]:
    """The command. Raises Unavailable without one."""
    found = (
        shlex.split(os.environ.get("CC", ""))
        or [path for path in map(shutil.which, ("cc", "gcc", "clang")) if path is not None][:1]
    )
    if not found:
        raise Unavailable("there is no C compiler, which this needs: cc, gcc or clang, or CC")
    return found


def cache_folder(sources: Iterable[Path] = _FILES) -> Path:
    """Of this release's sources, in XDG_CACHE_HOME or ~/.cache."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "sparsesmith" / "native" / digest


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else cache_folder()))
