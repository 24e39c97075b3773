"""The device in a process of its own: what a kernel does to it ends that process and no other.

The parent never touches the device. It sends one numbered call at a time over a pipe and waits no longer than the
stage's limit; a child that is late is killed, one that died or whose device is lost is buried, and in each case the
candidate gets its outcome and the next call a fresh child. A reply is taken from the pipe of the child that was asked
and only under the number that was asked, so an answer can never be attributed to another kernel.

What it does not protect against: another process of the same user on the same GPU, and defects of the driver that
outlive a process. No host code of a candidate runs anywhere: the child runs our code and device code.
"""

import ctypes
import logging
import math
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal

from services.evaluator.allowance import Allowance, BudgetSpent, Stopped
from services.evaluator.checking.correctness import Correct, MemoryDamaged
from services.evaluator.compiling.compiler import Compiled
from services.evaluator.device import Device, DeviceLost, RunFailure, Timing
from services.evaluator.isolation.workbench import FinalTimes, LocalWorkbench, Stored, damage
from sparsesmith.errors import SparsesmithError, Unavailable
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import Baselines, Crashed, DeviceDescription, Mismatch, Rejected, TimedOut, Workload

logger = logging.getLogger(__name__)

DeviceFactory = Callable[[], Device]
"""Makes the device in the child; must be picklable, and import what is heavy only when called."""


@dataclass(frozen=True)
class StageLimits:
    """Wall time of each stage in seconds; a child that takes longer is killed."""

    start_s: float = 180
    """Imports, the device's context, just-in-time compilation of our own code."""
    open_s: float = 120
    """Upload of a workload."""
    baselines_s: float = 300
    store_s: float = 60
    draw_s: float = 180
    """Inputs of a batch and reference results, on the host: no kernel runs meanwhile."""
    check_s: float = 60
    time_s: float = 60


STAGE_PATIENCE_S = 1.0
"""A stage that was begun may take this long whatever the job's allowance says: killing its process costs more."""
LOOK_S = 0.25
"""After that the allowance is asked this often."""

UNHURRIED = Allowance(budget_s=math.inf, ends=math.inf)


@dataclass(frozen=True)
class _Open:
    workload: Workload
    pattern: Pattern | None
    """None: the child has this workload open and begins a new batch."""
    values: FixedValues | None
    """Where the workload fixes them."""


@dataclass(frozen=True)
class _Call:
    stage: Literal["baselines", "store", "store_ahead", "draw", "check", "time", "retime", "unload"]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class _Request:
    number: int
    body: _Open | _Call


@dataclass(frozen=True)
class _Done:
    number: int
    value: Any


@dataclass(frozen=True)
class _Refused:
    """The call failed with an error of our own tree; the child is sound."""

    number: int
    error: SparsesmithError


@dataclass(frozen=True)
class _Ending:
    """The child's last word."""

    number: int
    outcome: Crashed | Mismatch


_Reply = _Done | _Refused | _Ending


class DeviceDoesNotStart(Unavailable):
    """No child gets the device up: the GPU hangs, is gone, or is held by a process that nothing can kill."""


class _Ended(Exception):
    """The child is gone; the outcome is what the candidate gets."""

    def __init__(self, outcome: RunFailure) -> None:
        super().__init__(outcome.message)
        self.outcome: RunFailure = outcome


class DeviceProcess:
    """A device in a child process that is replaced whenever it ends. Use from one thread.

    With `spare`, a second child waits ready, so that a candidate that kills its child costs the next one no start.
    """

    def __init__(self, factory: DeviceFactory, limits: StageLimits, *, spare: bool = False) -> None:
        self._factory = factory
        self._limits = limits
        self._keeps_spare = spare
        self._child: _Child | None = None
        self._spare: _Child | None = None
        self._description: DeviceDescription | None = None
        self.num_started = 0

    def start(self) -> DeviceDescription:
        """Starts the child and waits for its device. Raises Unavailable."""
        self._running_child()
        return self.description()

    def description(self) -> DeviceDescription:
        if self._description is None:
            self._description = self._running_child().description
        return self._description

    def open(
        self,
        workload: Workload,
        pattern: Pattern,
        values: FixedValues | None = None,
        allowance: Allowance = UNHURRIED,
    ) -> "SandboxedWorkbench":
        """A workbench for a new batch. The one returned before must not be used any more.

        Its stages raise BudgetSpent and Stopped as the allowance says; the child that was at work is gone then.
        """
        if self._child is not None:
            self._child.is_open = False
        return SandboxedWorkbench(self, self._limits, _Open(workload, pattern, values), allowance)

    def close(self) -> None:
        """Ends the children. Safe to call twice."""
        for child in (self._child, self._spare):
            if child is not None:
                child.kill()
        self._child = self._spare = None

    def is_running(self) -> bool:
        return self._child is not None and self._child.is_alive()

    def _opened_child(self, opening: _Open, allowance: Allowance) -> "_Child":
        child = self._running_child()
        if not child.is_open:
            is_known = child.workload == opening.workload
            body = _Open(opening.workload, None, None) if is_known else opening
            self._exchange(child, body, "opening the workload", self._limits.open_s, allowance)
            child.workload, child.is_open = opening.workload, True
        return child

    def _ask(self, opening: _Open, call: _Call, limit_s: float, allowance: Allowance) -> Any:
        """The value of a stage. Raises _Ended where the child did not survive it, Unavailable where none starts,
        BudgetSpent and Stopped as the allowance says, before a stage begins or when it lasts."""
        if call.stage != "unload":
            allowance.check(call.stage)
        try:
            child = self._opened_child(opening, allowance)
        except _Ended as ended:
            raise Unavailable(f"the device does not take the workload: {ended.outcome.message}") from ended
        return self._exchange(child, call, call.stage, limit_s, allowance)

    def _exchange(self, child: "_Child", body: _Open | _Call, stage: str, limit_s: float, allowance: Allowance) -> Any:
        try:
            reply = child.exchange(body, stage, limit_s, allowance)
        except (_Ended, BudgetSpent, Stopped):
            self._discard(child)
            raise
        match reply:
            case _Done(value=value):
                return value
            case _Refused(error=error):
                raise error
            case _Ending(outcome=outcome):
                self._discard(child)
                raise _Ended(outcome)

    def _running_child(self) -> "_Child":
        if self._child is None or not self._child.is_alive():
            spare, self._spare = self._spare, None
            self._child = spare if spare is not None and spare.is_alive() else _Child(self._factory)
            self.num_started += 1
            self._child.wait_until_ready(self._limits.start_s)
        if self._keeps_spare and self._spare is None:
            self._spare = _Child(self._factory)
        return self._child

    def _discard(self, child: "_Child") -> None:
        child.kill()
        self._child = None


class SandboxedWorkbench:
    """`workbench.Workbench` across the process boundary: a child that ends is an outcome."""

    def __init__(self, process: DeviceProcess, limits: StageLimits, opening: _Open, allowance: Allowance) -> None:
        self._process = process
        self._limits = limits
        self._opening = opening
        self._allowance = allowance
        self._kernels: dict[str, _CheckedKernel] = {}
        self._drawn_in = 0
        """Number of the child that has the inputs; 0: none."""

    def description(self) -> DeviceDescription:
        return self._process.description()

    def baselines(self) -> Baselines:
        """Raises Unavailable where the device does not survive them."""
        try:
            baselines: Baselines = self._ask(_Call("baselines"), self._limits.baselines_s)
        except _Ended as ended:
            raise Unavailable(f"timing the baselines failed: {ended.outcome.message}") from ended
        return baselines

    def store(self, program: KernelProgram) -> Stored | Rejected | RunFailure:
        outcome: Stored | Rejected | RunFailure = self._outcome(_Call("store", (program,)), self._limits.store_s)
        return outcome

    def store_ahead(self, programs: Sequence[KernelProgram], limit_s: float) -> None:
        """What is not ready when the stage's limit is over is built when it is asked for."""
        self._outcome(_Call("store_ahead", (tuple(programs), limit_s)), limit_s + self._limits.store_s)

    def draw(self) -> None:
        """Once for each child that the batch comes to. Raises Unavailable where the device does not survive it."""
        if self._drawn_in == self._process.num_started and self._process.is_running():
            return
        try:
            self._ask(_Call("draw"), self._limits.draw_s)
        except _Ended as ended:
            raise Unavailable(f"drawing the inputs failed: {ended.outcome.message}") from ended
        self._drawn_in = self._process.num_started

    def check(self, kernel_id: str, program: KernelProgram, binary: Compiled) -> Correct | Rejected | RunFailure:
        self.draw()
        call = _Call("check", (kernel_id, program, binary))
        verdict: Correct | Rejected | RunFailure = self._outcome(call, self._limits.check_s)
        if isinstance(verdict, Correct):
            self._kernels[kernel_id] = _CheckedKernel(program, binary, self._process.num_started)
        return verdict

    def time(self, kernel_id: str) -> Timing | RunFailure:
        outcome: Timing | RunFailure = self._outcome(_Call("time", (kernel_id,)), self._limits.time_s)
        return outcome

    def retime(self, kernel_ids: Sequence[str], routine: str) -> FinalTimes | RunFailure:
        """Kernels that were loaded in a child that has ended are loaded and checked again."""
        for kernel_id in kernel_ids:
            kernel = self._kernels[kernel_id]
            if kernel.child != self._process.num_started or not self._process.is_running():
                verdict = self.check(kernel_id, kernel.program, kernel.binary)
                if not isinstance(verdict, Correct):
                    return Crashed(message=f"{kernel_id} did not pass a second time: {verdict.message}")
        call = _Call("retime", (tuple(kernel_ids), routine))
        final: FinalTimes | RunFailure = self._outcome(call, self._limits.time_s)
        return final

    def unload(self, kernel_id: str) -> None:
        kernel = self._kernels.pop(kernel_id, None)
        if kernel is not None and kernel.child == self._process.num_started:
            self._outcome(_Call("unload", (kernel_id,)), self._limits.store_s)

    def _ask(self, call: _Call, limit_s: float) -> Any:
        return self._process._ask(self._opening, call, limit_s, self._allowance)

    def _outcome(self, call: _Call, limit_s: float) -> Any:
        try:
            return self._ask(call, limit_s)
        except _Ended as ended:
            return ended.outcome


@dataclass(frozen=True, eq=False)
class _CheckedKernel:
    """What it takes to load a kernel again, and the number of the child that it is loaded in."""

    program: KernelProgram
    binary: Compiled
    child: int


class _Child:
    """The parent's end of one child process."""

    def __init__(self, factory: DeviceFactory) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, factory, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()
        self._number = 0
        self._description: DeviceDescription | None = None
        self.workload: Workload | None = None
        self.is_open = False

    @property
    def description(self) -> DeviceDescription:
        if self._description is None:
            raise Unavailable("the device has not started")
        return self._description

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def wait_until_ready(self, limit_s: float) -> None:
        """Raises Unavailable where the device does not come up."""
        try:
            reply = self._receive(0, "starting the device", limit_s, UNHURRIED)
        except _Ended as ended:
            self.kill()
            raise DeviceDoesNotStart(f"the device does not start: {ended.outcome.message}") from ended
        if not isinstance(reply, _Done):
            self.kill()
            raise DeviceDoesNotStart(f"the device does not start: {reply}")
        self._description = reply.value

    def exchange(self, body: _Open | _Call, stage: str, limit_s: float, allowance: Allowance) -> _Reply:
        """One call and its reply. Raises _Ended, BudgetSpent, Stopped."""
        self._number += 1
        try:
            self._connection.send(_Request(self._number, body))
        except OSError:
            raise _Ended(Crashed(message=self._obituary(stage))) from None
        return self._receive(self._number, stage, limit_s, allowance)

    def _receive(self, number: int, stage: str, limit_s: float, allowance: Allowance) -> _Reply:
        deadline = time.monotonic() + limit_s
        look_s = STAGE_PATIENCE_S
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                if self._connection.poll(min(left_s, look_s)):
                    reply: _Reply = self._connection.recv()
                    if reply.number == number:
                        return reply
                else:
                    allowance.check(stage)
                    look_s = LOOK_S
        except (EOFError, OSError, pickle.UnpicklingError):
            raise _Ended(Crashed(message=self._obituary(stage))) from None
        message = f"{stage}: not done within {limit_s:.4g} s; the process was killed"
        raise _Ended(TimedOut(stage="run", limit_s=limit_s, message=message))

    def _obituary(self, stage: str) -> str:
        self._process.join(5)
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"{stage}: the device's process was ended by {signal.Signals(-code).name}"
        return f"{stage}: the device's process ended with exit code {code}"

    def kill(self) -> None:
        self._process.kill()
        self._process.join(10)
        self._connection.close()


def _serve(connection: Connection, factory: DeviceFactory, parent_pid: int) -> None:
    """The child: answers calls until the pipe closes or the device cannot be trusted any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with(parent_pid)
    number = 0
    try:
        device = factory()
        connection.send(_Done(0, device.description()))
        servant = _Servant(device)
        while True:
            request: _Request = connection.recv()
            number = request.number
            connection.send(servant.answer(request))
    except EOFError:
        return
    except MemoryDamaged as error:
        connection.send(_Ending(number, damage(error)))
    except DeviceLost as error:
        connection.send(_Ending(number, Crashed(message=str(error))))
    except Exception as error:  # The sandbox's broad catch: whatever ended the child becomes the candidate's outcome.
        traceback.print_exc(file=sys.stderr)
        connection.send(_Ending(number, Crashed(message=f"{type(error).__name__}: {error}")))
    # No clean-up: a lost CUDA context can hang in its destructors.
    sys.stderr.flush()
    os._exit(1)


class _Servant:
    """Keeps the workbench of the workload that was opened last."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._workbench: LocalWorkbench | None = None

    def answer(self, request: _Request) -> _Reply:
        try:
            match request.body:
                case _Open() as opening:
                    self._open(opening)
                    return _Done(request.number, None)
                case _Call(stage=stage, arguments=arguments):
                    return _Done(request.number, getattr(self._workbench, stage)(*arguments))
        except SparsesmithError as error:
            return _Refused(request.number, error)

    def _open(self, opening: _Open) -> None:
        workload, pattern = opening.workload, opening.pattern
        if self._workbench is not None and pattern is None and self._workbench.workload == workload:
            self._workbench.begin_batch()
            return
        if self._workbench is not None:
            self._workbench.close()
            self._workbench = None
        if pattern is None:
            raise DeviceLost("the workload is not open")
        self._workbench = LocalWorkbench(self._device, workload, pattern, opening.values)


def _die_with(parent_pid: int) -> None:
    """On Linux the child is killed when the thread that started it ends, even while a kernel hangs."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(1)
