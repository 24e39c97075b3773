"""Compilations of a batch, started at once on all workers and taken in the order in which they finish."""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, as_completed
from concurrent.futures import TimeoutError as NotInTime
from contextlib import suppress
from types import TracebackType
from typing import Self

from services.evaluator.candidates import Parsed
from services.evaluator.compiling.compiler import Compiled, CompileError, Compiler
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import CompileFailed, Rejected, TimedOut
from sparsesmith_proto.message import Architecture


class CompilationsAhead:
    """A slow compilation holds up no candidate but its own. Use as a context: leaving it drops what was not started."""

    def __init__(self, compiler: Compiler, architecture: Architecture, timeout_s: float) -> None:
        self._compiler = compiler
        self._architecture = architecture
        self._timeout_s = timeout_s
        self._compiled: dict[str, Future[Compiled | CompileError]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for future in self._compiled.values():
            future.cancel()

    def start(self, candidates: Iterable[Parsed]) -> tuple[Parsed, ...]:
        """Starts compiling each as it comes, without waiting; hands them on."""
        started = []
        for each in candidates:
            if not isinstance(each.program, Rejected):
                self._submit(each.program)
            started.append(each)
        return tuple(started)

    def as_compiled(
        self, candidates: Iterable[Parsed], deadline: float, clock: Callable[[], float] = time.monotonic
    ) -> Iterator[Parsed]:
        """First the candidates that need no compiler, then each as its compilation ends; stops at the deadline.

        `deadline` on the clock, which may stand still at times. What was submitted goes on compiling while the consumer
        grades.
        """
        waiting: dict[Future[Compiled | CompileError], list[Parsed]] = {}
        refused = []
        for each in candidates:
            if isinstance(each.program, Rejected):
                refused.append(each)
            else:
                waiting.setdefault(self._submit(each.program), []).append(each)
        yield from refused
        while waiting and (left_s := deadline - clock()) > 0:
            with suppress(NotInTime):  # By a clock that never stands still.
                for future in as_completed(waiting, timeout=left_s):
                    for each in waiting.pop(future):
                        if clock() > deadline:
                            return
                        yield each

    def result(self, program: KernelProgram) -> Compiled | CompileFailed | TimedOut:
        """Of a program; waits where it is not done. Raises Unavailable where no compiler can be started."""
        compiled = self._submit(program).result()
        if isinstance(compiled, Compiled):
            return compiled
        if compiled.reason == "timeout":
            return TimedOut(stage="compile", limit_s=self._timeout_s, message=compiled.log)
        return CompileFailed(log=compiled.log)

    def _submit(self, program: KernelProgram) -> "Future[Compiled | CompileError]":
        if program.source not in self._compiled:
            self._compiled[program.source] = self._compiler.submit(program.source, self._architecture)
        return self._compiled[program.source]
