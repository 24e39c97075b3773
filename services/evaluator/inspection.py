"""A second pair of eyes: what passed on a GPU runs on the interpreter, which sees what a GPU does not.

A GPU does not say that a program read what nothing had written, an element beyond an array, or a copy that nobody had
waited for, and such a program can give the right result in every run that is checked. The interpreter says so, line by
line. It runs in a process of its own, beside the GPU's and while that goes on.

What it does not see: undefined reads in blocks that were not chosen, and, where not all blocks ran, of scratch and
outputs. What it cannot run, or not within its limits, has passed without (`Passed.inspected` is None).
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from services.evaluator.compiling.compiler import Compiled
from services.evaluator.device import Inspected
from services.evaluator.isolation.sandbox import DeviceProcess, SandboxedWorkbench
from sparsesmith.errors import SparsesmithError
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import Crashed, Mismatch

logger = logging.getLogger(__name__)

PATIENCE_S = 2.0
"""How long a job waits, at its end, for inspections that are not through: where a user wrote programs..."""
SHORT_PATIENCE_S = 0.25
"""...and where nobody did."""

MOST_ELEMENTS = 5_000_000
"""Nonzeros and entries of the vectors of a problem that is inspected."""

Found = Inspected | Crashed | Mismatch | None
"""None: it could not be told."""


class Inspections(Protocol):
    """Of one job's programs."""

    def ask(self, key: str, program: KernelProgram, binary: Compiled) -> None:
        """Has a program inspected, once for each key."""
        ...

    def found(self, most_s: float) -> dict[str, Found]:
        """By key, as far as there is an answer after so many seconds. Nothing is inspected afterwards."""
        ...

    def close(self) -> None:
        """Nothing is inspected afterwards: the job has ended, or was given back half-way."""
        ...


def inspection(inspections: Inspections, program: KernelProgram, binary: Compiled, most_s: float) -> Found:
    """Of one program by itself."""
    inspections.ask(program.source, program, binary)
    return inspections.found(most_s).get(program.source)


class NoInspections:
    """Where the device itself sees every access, or none is wanted."""

    def ask(self, key: str, program: KernelProgram, binary: Compiled) -> None:
        """Nothing."""

    def found(self, most_s: float) -> dict[str, Found]:
        return {}

    def close(self) -> None:
        """Nothing."""


class Inspector:
    """The interpreter beside a GPU. It starts when it is made, in the background: a job does not wait for that."""

    def __init__(self, make: Callable[[], DeviceProcess]) -> None:
        self._line = _Line()
        self._starting = self._line.submit(lambda: _started(make))

    def wait_until_started(self) -> None:
        """Also where it does not start."""
        wait([self._starting])

    def of(self, problem: Problem) -> "JobInspections | NoInspections":
        """Inspections of a job's programs; none while the interpreter starts, where it does not, and of a large
        problem, which it would take too long to take in."""
        if not self._starting.done() or problem.nnz + problem.num_elements > MOST_ELEMENTS:
            return NoInspections()
        process = self._starting.result()
        return NoInspections() if process is None else JobInspections(process, problem, self._line)

    def close(self) -> None:
        """Ends the process, in the midst of an inspection too. One that still starts ends with ours."""
        if self._starting.done() and (process := self._starting.result()) is not None:
            process.close()
        self._line.close()


Answer = TypeVar("Answer")


class _Line:
    """Calls one after another on one thread, which lasts: a process of the device dies with the thread that started it.
    Nobody waits for the thread's end."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="inspector", daemon=True).start()

    def submit(self, call: Callable[[], Answer]) -> "Future[Answer]":
        future: Future[Answer] = Future()
        self._calls.put((future, call))
        return future

    def close(self) -> None:
        self._calls.put(None)

    def _work(self) -> None:
        while (asked := self._calls.get()) is not None:
            future, call = asked
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # Of our own, for whoever asks for the result.
                    future.set_exception(error)


class JobInspections:
    """One after another, on the thread that the process belongs to."""

    def __init__(self, process: DeviceProcess, problem: Problem, line: _Line) -> None:
        self._process = process
        self._problem = problem
        self._line = line
        self._workbench: SandboxedWorkbench | None = None
        self._futures: dict[str, Future[Found]] = {}
        self._closed = False

    def ask(self, key: str, program: KernelProgram, binary: Compiled) -> None:
        if key not in self._futures and not self._closed:
            self._futures[key] = self._line.submit(partial(self._inspect, program, binary))

    def found(self, most_s: float) -> dict[str, Found]:
        wait(self._futures.values(), most_s)
        self.close()
        return {key: _answer(future) for key, future in self._futures.items() if _is_answered(future)}

    def close(self) -> None:
        """What is under way comes to its end, within its limit."""
        self._closed = True
        for future in self._futures.values():
            future.cancel()

    def _inspect(self, program: KernelProgram, binary: Compiled) -> Found:
        try:
            if self._workbench is None:
                self._workbench = self._process.open(self._problem)
            found = self._workbench.inspect(program, binary)
        except SparsesmithError as error:
            logger.info("not inspected: %s", error)
            return None
        return found if isinstance(found, Inspected | Crashed | Mismatch) else None


def _is_answered(future: "Future[Found]") -> bool:
    return future.done() and not future.cancelled()


def _answer(future: "Future[Found]") -> Found:
    """A defect of ours costs no job its answer."""
    if (error := future.exception()) is not None:
        logger.error("not inspected: %r", error)
        return None
    return future.result()


def _started(make: Callable[[], DeviceProcess]) -> DeviceProcess | None:
    """None, with a word in the log, where it does not start."""
    began = time.monotonic()
    with suppress(SparsesmithError):
        process = make()
        process.start()
        logger.info("programs that pass are inspected (the interpreter started in %.1f s)", time.monotonic() - began)
        return process
    logger.warning("the interpreter does not start: programs pass without an inspection")
    return None
