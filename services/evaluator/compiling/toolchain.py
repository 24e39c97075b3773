"""The toolchain of this machine: NVRTC, the headers, `ptxas`, the options of both; found together and named as one.

From a program's text to PTX, which is read, printed anew and assembled: what is checked is what runs. Both tools are
native code that reads hostile input: build in a process that may be lost (see compiler.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from services.evaluator.compiling.assembler import Assembled, Assembler, AssemblerNotFound
from services.evaluator.compiling.contract.facts import NO_FACTS, PtxFacts, facts_of
from services.evaluator.compiling.log import split_log
from services.evaluator.compiling.nvrtc import PROGRAM_NAME, Nvrtc, NvrtcNotFound, find_include_folders, find_library
from services.evaluator.ptx import MalformedPtx, print_module, read_module
from sparsesmith.cuda.options import CODE_OPTIONS
from sparsesmith.errors import Unavailable

UNBOUNDED_STACK = "cannot be statically determined"
"""Some assemblers' words for recursion and calls through pointers."""


@dataclass(frozen=True)
class Built:
    """What became of one source: `log` is the compiler's, `assembled` the assembler's."""

    succeeded: bool
    log: str
    assembled: str = ""
    ptx: str = ""
    cubin: bytes = b""
    facts: PtxFacts = NO_FACTS


@dataclass(frozen=True, eq=False)
class Toolchain:
    """One that was found to be there."""

    compiler: Nvrtc
    assembler: Assembler
    include_folders: tuple[str, ...]

    @staticmethod
    def find() -> Toolchain:
        """The compiler, and the first assembler that is as new. Raises Unavailable."""
        try:
            compiler = Nvrtc(find_library())
            assembler = Assembler.find(compiler.version())
        except (NvrtcNotFound, AssemblerNotFound, OSError) as error:
            raise Unavailable(f"the CUDA compiler cannot be loaded: {error}") from error
        return Toolchain(compiler, assembler, tuple(map(str, find_include_folders())))

    @property
    def versions(self) -> Mapping[str, str]:
        """What tells it from another that would give other machine code, as it stands in results."""
        return {
            "nvrtc": _dotted(self.compiler.version()),
            "ptxas": _dotted(self.assembler.release),
            "options": " ".join(CODE_OPTIONS),
        }

    def build(self, source: str, architecture: str) -> Built:
        """Machine code for an architecture (`sm_90`), or why there is none."""
        result = self.compiler.compile(source, self._options(architecture))
        log = result.log
        for folder in sorted(self.include_folders, key=len, reverse=True):
            log = log.replace(folder + "/", "")
        if not result.succeeded:
            return Built(False, log)
        try:
            module = read_module(result.ptx)
        except MalformedPtx as error:
            return Built(True, log, facts=NO_FACTS._replace(unreadable=str(error)))
        ptx = print_module(module)
        assembled = self.assembler.assemble(ptx, architecture)
        if not assembled.succeeded:
            return Built(False, f"{log}{_with_lines(assembled, ptx)}")
        facts = facts_of(module)
        facts = facts._replace(has_unbounded_stack=facts.has_unbounded_stack or UNBOUNDED_STACK in assembled.log)
        return Built(True, log, assembled.log, ptx, assembled.cubin, facts)

    def _options(self, architecture: str) -> Sequence[str]:
        """Of NVRTC; `ptxas` compiles for the same architecture, with no option that changes the code."""
        return [
            f"--gpu-architecture={architecture.replace('sm_', 'compute_')}",
            *CODE_OPTIONS,
            "-lineinfo",
            *(f"-I{folder}" for folder in self.include_folders),
        ]


@cache
def toolchain_versions() -> Mapping[str, str]:
    """Of this machine's toolchain, for a device to say where its numbers come from. Raises Unavailable."""
    return Toolchain.find().versions


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


_PTX_LINE = re.compile(r"kernel\.ptx, line (\d+)")
_LOCATION = re.compile(r"\.loc 1 (\d+) 0")


def _with_lines(assembled: Assembled, ptx: str) -> str:
    """The assembler's messages, with lines of the program in the place of lines of PTX."""
    lines = ptx.split("\n")

    def line_of_the_program(found: re.Match[str]) -> str:
        before = lines[: int(found[1])]
        location = next(filter(None, (_LOCATION.fullmatch(line) for line in reversed(before))), None)
        return f"{PROGRAM_NAME}({location[1] if location else 0})"

    return _PTX_LINE.sub(line_of_the_program, split_log(assembled.log)[0] or assembled.log)
