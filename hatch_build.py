"""The wheel's build hook. With HATCH_BUILD_HOOK_ENABLE_CUSTOM=true the wheel holds libsparsesmith_op, built by this
machine's C compiler, and is named for the manylinux that it needs. Without, the hook is not run: the wheel is pure
Python, and the library is built where it is used.
"""

import importlib.util
import platform
import re
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "sparsesmith/operator/native"


class NativeWheel(BuildHookInterface):
    """Of wheels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = _built(Path(self.root))
        build_data["force_include"][str(library)] = f"{FOLDER}/{library.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_{_oldest_glibc(library)}_{platform.machine()}"


def _built(root: Path) -> Path:
    """By the module that builds it everywhere; the packages around it need more than a build has."""
    sys.path.insert(0, str(root))
    specification = importlib.util.spec_from_file_location("native_build", root / FOLDER / "build.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    library: Path = module.build(Path(mkdtemp()))
    return library


def _oldest_glibc(library: Path) -> int:
    """Minor version of the oldest glibc 2 that has all it asks for."""
    return max(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes()))
