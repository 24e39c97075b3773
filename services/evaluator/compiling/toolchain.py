"""The toolchain of this machine: NVRTC, the headers, `ptxas`, the options of both; found together and named as one.

What is checked is what runs: the compiler's PTX is read, and its machine code taken where no reader could take the text
for anything else and nothing is to be changed; else it is printed anew and assembled. Both tools are native code that
reads hostile input: build in a process that may be lost (see compiler.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from services.evaluator.compiling.assembler import Assembled, Assembler, AssemblerNotFound
from services.evaluator.compiling.contract.facts import NO_FACTS, PtxFacts, facts_of
from services.evaluator.compiling.contract.flow.unset import with_registers_set
from services.evaluator.compiling.log import split_log
from services.evaluator.ptx import MalformedPtx, is_read_alike, print_module, read_module
from sparsesmith.cuda.nvrtc import (
    PROGRAM_NAME,
    Nvrtc,
    NvrtcNotFound,
    NvrtcResult,
    find_include_folders,
    find_library,
)
from sparsesmith.cuda.options import CODE_OPTIONS
from sparsesmith.errors import Unavailable

UNBOUNDED_STACK = re.compile(r"^ptxas \w+\s*:.*cannot be statically determined", re.MULTILINE)
"""Some assemblers' words for recursion and calls through pointers."""


@dataclass(frozen=True)
class Built:
    """What became of one source; the log is the compiler's, then the assembler's."""

    succeeded: bool
    log: str
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
        result = self._compiled(source, architecture)
        log = result.log
        for folder in sorted(self.include_folders, key=len, reverse=True):
            log = log.replace(folder + "/", "")
        if not result.succeeded:
            return Built(False, log)
        try:
            read = read_module(result.ptx)
        except MalformedPtx as error:
            return Built(True, split_log(log)[0], facts=NO_FACTS._replace(unreadable=str(error)))
        module, unset = with_registers_set(read)
        ptx = print_module(module)
        if module is read and is_read_alike(result.ptx) and _holds_what_was_read(result.cubin):
            assembled = Assembled(True, log, result.cubin)
        else:
            assembled = self.assembler.assemble(ptx, architecture)
            assembled = replace(assembled, log=f"{split_log(log)[0]}\n{assembled.log}".lstrip())
        if not assembled.succeeded:
            return Built(False, _with_lines(assembled, ptx))
        facts = facts_of(module, unset)
        has_no_bound = facts.has_unbounded_stack or bool(UNBOUNDED_STACK.search(assembled.log))
        return Built(True, assembled.log, ptx, assembled.cubin, facts._replace(has_unbounded_stack=has_no_bound))

    def options(self, architecture: str) -> list[str]:
        """Of NVRTC, for a machine (`sm_90`) or a language (`compute_90`). CODE_OPTIONS alone change the code."""
        return [
            f"--gpu-architecture={architecture}",
            *CODE_OPTIONS,
            "-lineinfo",
            "--ptxas-options=-v",
            *(f"-I{folder}" for folder in self.include_folders),
        ]

    def _compiled(self, source: str, architecture: str) -> NvrtcResult:
        """To PTX and machine code at once; to PTX alone where that does not assemble: our assembler names the lines."""
        options = self.options(architecture)
        if _HOST_TYPES.search(source) is None:
            options.append("--minimal")
        result = self.compiler.compile(source, options)
        if result.succeeded or "ptxas" not in result.log:
            return result
        return self.compiler.compile(source, self.options(architecture.replace("sm_", "compute_")))


@cache
def own_toolchain() -> Toolchain:
    """For programs of ours, in a process that hostile ones are compiled outside of. Raises Unavailable."""
    return Toolchain.find()


def toolchain_versions() -> Mapping[str, str]:
    """Of this machine's toolchain, for a device to say where its numbers come from. Raises Unavailable."""
    return own_toolchain().versions


_HOST_TYPES = re.compile(r"#\s*include|\b(?:cuda|tex|surf)")
"""What needs the declarations of the runtime, textures and surfaces; without them the compiler starts a fifth sooner,
and makes the same code."""


def _holds_what_was_read(cubin: bytes) -> bool:
    """Variables in global memory that nothing names, which headers declare, are not printed anew."""
    return bool(cubin) and b".nv.global" not in cubin


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
