"""Generated headers on a CUDA runtime of our own in host memory (`host_cuda.cpp`): compiled by nvcc, then run.

The runtime prints each launch and the contents of every argument: no GPU is needed to see that arrays are built, that
arguments stand in order and that headers live together.
"""

import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sparsesmith.formats.format import Argument
from sparsesmith.program.directives import ResolvedLaunch

KINDS = {
    "int": "i",
    "int*": "I",
    "unsigned int*": "I",
    "unsigned short*": "S",
    "unsigned char*": "B",
    "float*": "F",
    "double*": "D",
    "__half*": "S",
    "__nv_bfloat16*": "S",
}
"""How an argument is printed: 16-bit numbers as their bits."""
_OPTIONS = ("-std=c++17", "-arch=sm_90", "-cudart", "none", "-Xcompiler", "-Wall", "-t", "2")
_NOT_SAID = ("-diag-suppress", "20054")
"""What nvcc says of each `__shared__` barrier and pipeline of `cuda::`, though it is how they are declared."""

_MAIN = Template("""
#include <cstdio>
#include <cstdlib>
#include <exception>
extern std::string argument_kinds;
int num_allocated();
int in_another_unit();
$functions
int main(int, char** arguments) {
  argument_kinds = arguments[2];
  switch (std::atoi(arguments[1])) {
$cases
  }
  std::printf("left %d\\n", num_allocated() + in_another_unit());
}
""")


@dataclass(frozen=True)
class Case:
    """A header, and statements that use it."""

    namespace: str
    header: str
    statements: str


@dataclass(frozen=True)
class HostProgram:
    """Runs one case at a time."""

    path: Path

    def run(self, number: int, arguments: Iterable[Argument], given: str = "") -> list[str]:
        """The lines that it printed. `given`: its standard input."""
        kinds = "".join(KINDS[argument.c_type.removeprefix("const ")] for argument in arguments)
        command = [str(self.path), str(number), kinds]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()


def build(folder: Path, cases: Sequence[Case], functions: str) -> HostProgram:
    """All headers, included by two translation units of one program. Skips the test without nvcc."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    for case in cases:
        (folder / f"{case.namespace}.hpp").write_text(case.header)
    includes = "".join(f'#include "{case.namespace}.hpp"\n' for case in cases)
    uses = "".join(f"  sum += sizeof({case.namespace}::Kernel) == 0;\n" for case in cases)
    chosen = "\n".join(f"    case {number}: {{ {case.statements} }} break;" for number, case in enumerate(cases))
    (folder / "main.cu").write_text(includes + _MAIN.substitute(functions=functions, cases=chosen))
    (folder / "other.cu").write_text(f"{includes}int in_another_unit() {{\n  int sum = 0;\n{uses}  return sum;\n}}\n")
    sources = [folder / "main.cu", folder / "other.cu", Path(__file__).with_name("host_cuda.cpp")]
    command: list[str | Path] = ["nvcc", *_OPTIONS, *_NOT_SAID, "-o", folder / "program", *sources]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr
    return HostProgram(folder / "program")


def check_launches(
    printed: Iterable[str], launches: Iterable[ResolvedLaunch], arguments: Mapping[str, npt.NDArray[Any]]
) -> None:
    """What a case printed: these launches, each with these arguments, and nothing held at the end."""
    lines = iter([line for line in printed if not line.startswith("shared ")])
    for launch in launches:
        _, kernel, *configuration = next(lines).split()
        assert launch.kernel in kernel
        assert list(map(int, configuration)) == [*launch.grid, *launch.block, launch.shared_bytes]
        for name, array in arguments.items():
            expected = array.view(np.uint16) if array.dtype.itemsize == 2 else array
            given = np.array(next(lines).split(), dtype=expected.dtype)
            if given.size == 1 and expected.size == 0:  # At least a byte is allocated.
                continue
            np.testing.assert_array_equal(given, expected, err_msg=name)
    assert list(lines) == ["left 0"], "device memory was not given back"
