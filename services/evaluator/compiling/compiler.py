"""Compiling kernel programs in worker processes that may be lost.

Each worker is a fresh Python process with a memory limit, a minimal environment and no inherited files; it serves one
program after another. A program that exceeds its time, exhausts the memory or crashes the compiler costs its worker,
which is replaced; the caller gets a CompileError.

The kernel holds each worker, and the assembler that it starts (`confinement`): no file is written, no network reached,
nothing but the toolchain read or run.

What this does not protect against: a compiler bug that runs code in the worker, within those bounds; files of the
toolchain and the system that `#include` can reach (the domain refuses such programs before).
"""

from __future__ import annotations

import json
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Literal

from services.evaluator.compiling.contract.facts import PtxFacts
from services.evaluator.compiling.log import KernelResources, split_log
from services.evaluator.compiling.toolchain import own_toolchain
from services.evaluator.compiling.worker import READY
from services.evaluator.confinement.profile import ConfinementOption
from sparsesmith.errors import Unavailable

logger = logging.getLogger(__name__)

DEFAULT_TIMEOUT_S = 20.0
STARTUP_TIMEOUT_S = 60.0
MAX_LOG_CHARACTERS = 16_384
MAX_SOURCE_CHARACTERS = 1 << 20

CompileFailure = Literal["error", "timeout", "crashed"]


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


_TINY = 'extern "C" __global__ void k(float* y) { y[threadIdx.x] = 1.0f; }'

log = logging.getLogger(__name__)


class KeptPrograms:
    """What was compiled lately, by text and architecture, up to a size; safe to use from several threads.

    Equal texts give equal code: a toolchain does not change while its process lives.
    """

    MAX_BYTES = 128 << 20

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._programs: OrderedDict[tuple[str, str], Compiled] = OrderedDict()
        self.num_bytes = 0

    def get(self, source: str, architecture: str) -> Compiled | None:
        with self._lock:
            found = self._programs.get((source, architecture))
            if found is not None:
                self._programs.move_to_end((source, architecture))
            return found

    def add(self, source: str, architecture: str, compiled: Compiled) -> None:
        """Those used least lately make room."""
        with self._lock:
            before = self._programs.pop((source, architecture), None)
            self.num_bytes += _num_bytes(source, compiled) - (0 if before is None else _num_bytes(source, before))
            self._programs[source, architecture] = compiled
            while self.num_bytes > self._max_bytes:
                (text, _), gone = self._programs.popitem(last=False)
                self.num_bytes -= _num_bytes(text, gone)


def _num_bytes(source: str, compiled: Compiled) -> int:
    return len(source) + len(compiled.ptx) + len(compiled.cubin) + len(compiled.log)


class Compiler:
    """Worker processes that compile programs, used as a context manager; safe to use from several threads."""

    def __init__(
        self, num_workers: int = 1, *, timeout_s: float = DEFAULT_TIMEOUT_S, confinement: ConfinementOption = "auto"
    ) -> None:
        """`confinement`: see the evaluator's settings."""
        if num_workers < 1:
            raise ValueError(f"num_workers is {num_workers}, the least is 1")
        self.timeout_s = timeout_s
        self._confinement = confinement
        self.is_confined = confinement != "off"
        """Whether the kernel holds the workers, by what it has."""
        self._num_workers = num_workers
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._kept = KeptPrograms()
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="compile")
        self._is_closing = threading.Event()
        self._meanwhile: threading.Thread | None = None

    def __enter__(self) -> Compiler:
        """Start the workers; raises Unavailable where there is no NVRTC, or none works as confined as it must be."""
        try:
            self._start()
        except Unavailable as error:
            if self._confinement != "auto":
                raise
            self.is_confined = False
            self._start()
            logger.warning("compilers run without confinement, for with it they do not start: %s", error.message)
        return self

    def _start(self) -> None:
        workers = [_Worker(is_confined=self.is_confined) for _ in range(self._num_workers)]
        try:
            for worker in workers:
                worker.wait_until_ready()
        except Unavailable:
            for worker in workers:
                worker.kill()
            raise
        for worker in workers:
            self._idle.put(worker)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closing.set()
        self.wait_for_meanwhile()
        self._threads.shutdown(wait=True, cancel_futures=True)
        while not self._idle.empty():
            self._idle.get().kill()

    def submit(self, source: str, architecture: str) -> Future[Compiled | CompileError]:
        """Compile for an architecture (`sm_90`) when a worker is free; the future raises only if none can start. What
        was compiled lately is there at once."""
        if (kept := self._kept.get(source, architecture)) is not None:
            known: Future[Compiled | CompileError] = Future()
            known.set_result(kept)
            return known
        return self._threads.submit(self._compile, source, architecture)

    def warm_up(self, architecture: str) -> None:
        """Lets every worker compile once, so that the first program finds the compiler's own tables in memory."""
        texts = [f"{_TINY}// {number}" for number in range(self._num_workers)]
        for compiling in [self._threads.submit(self._compile, text, architecture) for text in texts]:
            if not isinstance(result := compiling.result(), Compiled):
                log.warning("a compiler does not compile an empty kernel: %s", result.log)

    def compile_meanwhile(self, sources: Iterable[str], architecture: str) -> None:
        """Compiles programs that are likely to be asked for, in a thread, one at a time: what somebody waits for is
        behind one of them at most. To be called once."""
        self._meanwhile = threading.Thread(target=self._compile_one_by_one, args=(sources, architecture), daemon=True)
        self._meanwhile.start()

    def wait_for_meanwhile(self) -> None:
        """Until they are compiled; after the end of the context until the one in hand is."""
        if self._meanwhile is not None:
            self._meanwhile.join()

    def _compile_one_by_one(self, sources: Iterable[str], architecture: str) -> None:
        for source in sources:
            if self._is_closing.is_set():
                return
            if not isinstance(result := self.compile(source, architecture), Compiled):
                log.warning("a usual program does not compile: %s", result.log)

    def compile(self, source: str, architecture: str) -> Compiled | CompileError:
        """Compile one program and wait for it."""
        return self.submit(source, architecture).result()

    def compile_many(self, sources: Iterable[str], architecture: str) -> Iterator[Compiled | CompileError]:
        """Compile all programs on all workers; results come in the order of the sources, as they become ready."""
        futures = [self.submit(source, architecture) for source in sources]
        return (future.result() for future in futures)

    def _compile(self, source: str, architecture: str) -> Compiled | CompileError:
        if len(source) > MAX_SOURCE_CHARACTERS:
            return CompileError(f"the program has {len(source)} characters, over {MAX_SOURCE_CHARACTERS}", "error")
        worker = self._idle.get()
        try:
            result = worker.compile(source, architecture, self.timeout_s)
            if isinstance(result, Compiled):
                self._kept.add(source, architecture, result)
            if isinstance(result, CompileError) and result.reason != "error":
                worker.kill()
                worker = _Worker(is_confined=self.is_confined)
                worker.wait_until_ready()
            return result
        finally:
            self._idle.put(worker)


def compile_program(
    source: str,
    architecture: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Compiled | CompileError:
    """Compile one program in a worker of its own (about 0.2 s to start); use a Compiler for more than a few."""
    with Compiler(timeout_s=timeout_s) as compiler:
        return compiler.compile(source, architecture)


def compile_own(source: str, architecture: str) -> Compiled | CompileError:
    """Compile a program of ours in this process, which may be one that starts no other. Raises Unavailable."""
    started = time.perf_counter()
    built = own_toolchain().build(source, architecture)
    if not built.succeeded:
        return CompileError(_bounded(built.log), "error")
    log, resources = split_log(built.log)
    compile_ms = (time.perf_counter() - started) * 1e3
    return Compiled(built.ptx, built.cubin, _bounded(log), resources, compile_ms, built.facts)


_WORKER_CODE = """import sys; from services.evaluator.compiling.worker import serve
serve(int(sys.argv[1]), is_confined=sys.argv[2] == 'True')"""
_KEPT_ENVIRONMENT = ("PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "LANG", "TMPDIR")


class _Worker:
    """A worker process and the connection to it."""

    def __init__(self, *, is_confined: bool) -> None:
        ours, theirs = socket.socketpair()
        environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)  # noqa: PTH100
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER_CODE, str(theirs.fileno()), str(is_confined)],
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
                message = self._connection.recv_bytes()
                if message == READY:
                    return
                raise Unavailable(message.decode())
        except EOFError:
            pass
        self.kill()
        raise Unavailable("a compiler process did not start")

    def compile(self, source: str, architecture: str, timeout_s: float) -> Compiled | CompileError:
        """Compile one program; after a timeout or a crash the worker must be killed."""
        try:
            self._connection.send_bytes(json.dumps([source, architecture]).encode())
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
