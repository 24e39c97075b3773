"""Compiling kernel programs in worker processes that may be lost.

Each worker is a fresh Python process with a memory limit, a minimal environment and no inherited files; it serves one
program after another. A program that exceeds its time, exhausts the memory or crashes the compiler costs its worker,
which is replaced; the caller gets a CompileError.

What this does not protect against: a compiler bug that runs code in the worker (it has the rights of the user; run the
evaluator in a container), and files that `#include` can reach (the domain refuses such programs before).
"""

from __future__ import annotations

import gc
import json
import os
import queue
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Literal

from services.evaluator.compiling.assembler import Assembled, Assembler, AssemblerNotFound
from services.evaluator.compiling.contract.facts import NO_FACTS, PtxFacts, facts_of
from services.evaluator.compiling.contract.flow.unset import with_registers_set
from services.evaluator.compiling.nvrtc import (
    PROGRAM_NAME,
    Nvrtc,
    NvrtcNotFound,
    NvrtcResult,
    find_include_folders,
    find_library,
)
from services.evaluator.ptx import MalformedPtx, is_read_alike, print_module, read_module
from sparsesmith.errors import Unavailable

DEFAULT_TIMEOUT_S = 20.0
STARTUP_TIMEOUT_S = 60.0
WORKER_MEMORY_BYTES = 4 << 30
PROGRAMS_A_COLLECTION = 50
"""A worker looks for cycles among its objects that often."""
MAX_LOG_CHARACTERS = 16_384
MAX_SOURCE_CHARACTERS = 1 << 20

UNBOUNDED_STACK = re.compile(r"^ptxas \w+\s*:.*cannot be statically determined", re.MULTILINE)
"""Some assemblers' words for recursion and calls through pointers."""

CompileFailure = Literal["error", "timeout", "crashed"]


@dataclass(frozen=True)
class KernelResources:
    """What the assembler says about a kernel: registers of a thread, the rest in bytes."""

    registers: int
    spill_bytes: int
    """Bytes stored because the registers did not suffice."""
    local_bytes: int
    """Stack frame of a thread, spilled values included."""
    shared_bytes: int
    """Static shared memory of a block."""
    constant_bytes: int
    barriers: int


@dataclass(frozen=True)
class Compiled:
    """A compiled program: PTX as it was read, checked, printed anew and assembled (the interpreter runs it), machine
    code for the device, warnings, resources by kernel name. PTX and code are empty where the PTX could not be read."""

    ptx: str
    cubin: bytes
    log: str
    resources: Mapping[str, KernelResources]
    compile_ms: float
    facts: PtxFacts
    """What the contract asks of the PTX."""


@dataclass(frozen=True)
class CompileError:
    """A program that did not compile; the log is bounded and names lines of the program."""

    log: str
    reason: CompileFailure


@dataclass(frozen=True)
class CompileRequest:
    """A source, the architecture to compile it for (`sm_90`), and macro definitions."""

    source: str
    architecture: str
    definitions: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(source: str, architecture: str, definitions: Mapping[str, str] | None = None) -> CompileRequest:
        """A request with definitions given as a mapping from macro to value."""
        return CompileRequest(source, architecture, tuple((definitions or {}).items()))


class Compiler:
    """Worker processes that compile programs, used as a context manager; safe to use from several threads."""

    def __init__(self, num_workers: int = 1, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        if num_workers < 1:
            raise ValueError(f"num_workers is {num_workers}, the least is 1")
        self._timeout_s = timeout_s
        self._num_workers = num_workers
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="compile")

    def __enter__(self) -> Compiler:
        """Start the workers; raises Unavailable where there is no NVRTC."""
        workers = [_Worker() for _ in range(self._num_workers)]
        try:
            for worker in workers:
                worker.wait_until_ready()
        except Unavailable:
            for worker in workers:
                worker.kill()
            raise
        for worker in workers:
            self._idle.put(worker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        while not self._idle.empty():
            self._idle.get().kill()

    def submit(
        self, source: str, architecture: str, *, definitions: Mapping[str, str] | None = None
    ) -> Future[Compiled | CompileError]:
        """Compile when a worker is free; the future gives the result and raises only if no worker can be started."""
        request = CompileRequest.of(source, architecture, definitions)
        return self._threads.submit(self._compile, request)

    def compile(
        self, source: str, architecture: str, *, definitions: Mapping[str, str] | None = None
    ) -> Compiled | CompileError:
        """Compile one program and wait for it."""
        return self.submit(source, architecture, definitions=definitions).result()

    def compile_many(
        self, sources: Iterable[str], architecture: str, *, definitions: Mapping[str, str] | None = None
    ) -> Iterator[Compiled | CompileError]:
        """Compile all programs on all workers; results come in the order of the sources, as they become ready."""
        futures = [self.submit(source, architecture, definitions=definitions) for source in sources]
        return (future.result() for future in futures)

    def _compile(self, request: CompileRequest) -> Compiled | CompileError:
        if len(request.source) > MAX_SOURCE_CHARACTERS:
            return CompileError(
                f"the program has {len(request.source)} characters, over {MAX_SOURCE_CHARACTERS}", "error"
            )
        worker = self._idle.get()
        try:
            result = worker.compile(request, self._timeout_s)
            if isinstance(result, CompileError) and result.reason != "error":
                worker.kill()
                worker = _Worker()
                worker.wait_until_ready()
            return result
        finally:
            self._idle.put(worker)


def compile_program(
    source: str,
    architecture: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    definitions: Mapping[str, str] | None = None,
) -> Compiled | CompileError:
    """Compile one program in a worker of its own (about 0.2 s to start); use a Compiler for more than a few."""
    with Compiler(timeout_s=timeout_s) as compiler:
        return compiler.compile(source, architecture, definitions=definitions)


# -- parent's side of a worker ----------------------------------------------------------------------------------------
_WORKER_CODE = "import sys; from services.evaluator.compiling.compiler import serve; serve(int(sys.argv[1]))"
_KEPT_ENVIRONMENT = ("PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "LANG", "TMPDIR")


class _Worker:
    """A worker process and the connection to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)  # noqa: PTH100
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER_CODE, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()
        self._connection = Connection(ours.detach())

    def wait_until_ready(self) -> None:
        """Wait for the worker to load the compiler; raises Unavailable if it cannot."""
        try:
            if self._connection.poll(STARTUP_TIMEOUT_S):
                message = self._connection.recv_bytes().decode()
                if message == "ready":
                    return
                raise Unavailable(message)
        except EOFError:
            pass
        self.kill()
        raise Unavailable("a compiler process did not start")

    def compile(self, request: CompileRequest, timeout_s: float) -> Compiled | CompileError:
        """Compile one program; after a timeout or a crash the worker must be killed."""
        try:
            fields = [request.source, request.architecture, request.definitions]
            self._connection.send_bytes(json.dumps(fields).encode())
            if not self._connection.poll(timeout_s):
                return CompileError(f"the compiler did not finish within {timeout_s:g} s", "timeout")
            header = json.loads(self._connection.recv_bytes())
            if not header["succeeded"]:
                return CompileError(_bounded(header["log"]), "error")
            ptx = self._connection.recv_bytes().decode()
            cubin = self._connection.recv_bytes()
        except (EOFError, ConnectionError):
            return CompileError("the compiler process crashed or ran out of memory", "crashed")
        log, resources = split_log(header["log"])
        facts = PtxFacts.of_json(header["facts"])
        return Compiled(ptx, cubin, _bounded(log), resources, header["compile_ms"], facts)

    def kill(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.wait()


def _bounded(log: str) -> str:
    if len(log) <= MAX_LOG_CHARACTERS:
        return log
    return log[:MAX_LOG_CHARACTERS] + f"\n... ({len(log) - MAX_LOG_CHARACTERS} more characters)"


_FUNCTION_LINE = re.compile(r"ptxas info\s+: Function properties for (\S+)")
_STACK_LINE = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores")
_USAGE_LINE = re.compile(r"ptxas info\s+: Used (\d+) registers(.*)")
_NO_RESOURCES = KernelResources(0, 0, 0, 0, 0, 0)


def split_log(log: str) -> tuple[str, dict[str, KernelResources]]:
    """Separate the assembler's messages from its resource lines (`--verbose`)."""
    resources: dict[str, KernelResources] = {}
    messages: list[str] = []
    current = ""
    for line in log.splitlines():
        if (function := _FUNCTION_LINE.match(line)) is not None:
            current = function.group(1)
            resources.setdefault(current, _NO_RESOURCES)
        elif current and (stack := _STACK_LINE.search(line)) is not None:
            local, spill = int(stack.group(1)), int(stack.group(2))
            resources[current] = replace(resources[current], local_bytes=local, spill_bytes=spill)
        elif current and (usage := _USAGE_LINE.match(line)) is not None:
            resources[current] = _with_usage(resources[current], int(usage.group(1)), usage.group(2))
        elif not line.startswith("ptxas info") and (line.strip() or messages):
            messages.append(line)
    return "\n".join(messages).strip(), {name: used for name, used in resources.items() if used.registers}


def _with_usage(resources: KernelResources, registers: int, rest: str) -> KernelResources:
    def total(pattern: str) -> int:
        return sum(int(number) for number in re.findall(pattern, rest))

    return replace(
        resources,
        registers=registers,
        shared_bytes=total(r"(\d+) bytes smem"),
        constant_bytes=total(r"(\d+) bytes cmem"),
        barriers=total(r"used (\d+) barriers"),
    )


# -- the worker process -----------------------------------------------------------------------------------------------
def serve(descriptor: int) -> None:
    """Main loop of a worker process: read a program, compile it, send the result; ends when the parent does."""
    connection = Connection(descriptor)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (WORKER_MEMORY_BYTES, WORKER_MEMORY_BYTES))
    try:
        compiler = Nvrtc(find_library())
        assembler = Assembler.find(compiler.version())
    except (NvrtcNotFound, AssemblerNotFound, OSError) as error:
        connection.send_bytes(f"the CUDA compiler cannot be loaded: {error}".encode())
        return
    folders = [str(folder) for folder in find_include_folders()]
    connection.send_bytes(b"ready")
    gc.disable()  # A module taken apart is thousands of small objects, and gone with its program.
    for number in count(1):
        if number % PROGRAMS_A_COLLECTION == 0:
            gc.collect()
        try:
            source, architecture, definitions = json.loads(connection.recv_bytes())
        except EOFError:
            return
        started = time.perf_counter()
        built = _build(compiler, assembler, folders, source, architecture, definitions)
        header = {
            "succeeded": built.succeeded,
            "log": _ends_of(built.log),
            "compile_ms": (time.perf_counter() - started) * 1e3,
            "facts": built.facts.to_json(),
        }
        connection.send_bytes(json.dumps(header).encode())
        if built.succeeded:
            connection.send_bytes(built.ptx.encode())
            connection.send_bytes(built.cubin)


def _ends_of(log: str) -> str:
    """Of a long log the beginning, and the end, where the resources stand."""
    part = 32 * MAX_LOG_CHARACTERS
    return log if len(log) <= 2 * part else f"{log[:part]}\n{log[-part:]}"


@dataclass(frozen=True)
class _Built:
    """What became of one source; the log is the compiler's, then the assembler's."""

    succeeded: bool
    log: str
    ptx: str = ""
    cubin: bytes = b""
    facts: PtxFacts = NO_FACTS


def _build(
    compiler: Nvrtc,
    assembler: Assembler,
    folders: list[str],
    source: str,
    architecture: str,
    definitions: Iterable[tuple[str, str]],
) -> _Built:
    """What is checked is what runs: the compiler's PTX is read, and its machine code taken where no reader could take
    that text for anything else and nothing is to be changed; else it is printed anew and assembled."""
    result = _compiled(compiler, source, architecture, definitions, folders)
    log = result.log
    for folder in sorted(folders, key=len, reverse=True):
        log = log.replace(folder + "/", "")
    if not result.succeeded:
        return _Built(False, log)
    try:
        read = read_module(result.ptx)
    except MalformedPtx as error:
        return _Built(True, split_log(log)[0], facts=NO_FACTS._replace(unreadable=str(error)))
    module, unset = with_registers_set(read)
    ptx = print_module(module)
    if module is read and is_read_alike(result.ptx) and _holds_what_was_read(result.cubin):
        assembled = Assembled(True, log, result.cubin)
    else:
        assembled = assembler.assemble(ptx, architecture)
        assembled = replace(assembled, log=f"{split_log(log)[0]}\n{assembled.log}".lstrip())
    if not assembled.succeeded:
        return _Built(False, _with_lines(assembled, ptx))
    facts = facts_of(module, unset)
    facts = facts._replace(has_unbounded_stack=facts.has_unbounded_stack or bool(UNBOUNDED_STACK.search(assembled.log)))
    return _Built(True, assembled.log, ptx, assembled.cubin, facts)


def _holds_what_was_read(cubin: bytes) -> bool:
    """Variables in global memory that nothing names, which headers declare, are not printed anew."""
    return bool(cubin) and b".nv.global" not in cubin


def _compiled(
    compiler: Nvrtc, source: str, architecture: str, definitions: Iterable[tuple[str, str]], folders: Sequence[str]
) -> NvrtcResult:
    """To PTX and machine code at once; to PTX alone where that does not assemble: our assembler names the lines."""
    options = nvrtc_options(architecture, definitions, folders)
    if _HOST_TYPES.search(source) is None:
        options.append("--minimal")
    result = compiler.compile(source, options)
    if result.succeeded or "ptxas" not in result.log:
        return result
    return compiler.compile(source, nvrtc_options(architecture.replace("sm_", "compute_"), definitions, folders))


_HOST_TYPES = re.compile(r"#\s*include|\b(?:cuda|tex|surf)")
"""What needs the declarations of the runtime, textures and surfaces; without them the compiler starts a fifth sooner,
and makes the same code."""


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


def nvrtc_options(architecture: str, definitions: Iterable[tuple[str, str]], folders: Iterable[str]) -> list[str]:
    return [
        f"--gpu-architecture={architecture}",
        "-std=c++17",
        "-lineinfo",
        "--ptxas-options=-v",
        *(f"-I{folder}" for folder in folders),
        *(f"-D{name}={value}" for name, value in definitions),
    ]
