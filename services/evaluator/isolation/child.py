"""A process with the device, and the parent's end of it: one numbered call at a time, none longer than it may take."""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Literal, Protocol

from services.evaluator.allowance import UNHURRIED, Allowance
from services.evaluator.checking.correctness import MemoryDamaged
from services.evaluator.device import Device, DeviceLost, RunFailure
from services.evaluator.isolation import parcels
from services.evaluator.isolation.workbench import LocalWorkbench, damage
from sparsesmith.errors import SparsesmithError, Unavailable
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Crashed, DeviceDescription, Mismatch, TimedOut, Workload

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext


class DeviceFactory(Protocol):
    """Makes the device in the child; must be picklable, and import what is heavy only when called.

    `known` is what an earlier child's device has measured of itself: a spare one need not do it again.
    """

    def __call__(self, known: DeviceDescription | None = None) -> Device: ...


PRELOADED = "preloaded"
"""Attribute of a factory: modules that one process imports once, from which children are then forked. Where a factory
has none, each child starts afresh. What is imported must not touch the device: a fork cannot use it then."""


@dataclass(frozen=True)
class Open:
    workload: Workload
    problem: Problem | None
    """None: the child has this workload open and begins a new batch."""


@dataclass(frozen=True)
class Call:
    stage: Literal[
        "baselines",
        "build",
        "build_first",
        "build_ahead",
        "draw",
        "check",
        "time",
        "time_adverse",
        "retime",
        "bits",
        "draw_first",
        "check_first",
        "inspect",
        "profile",
        "unload",
    ]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Request:
    number: int
    body: Open | Call


@dataclass(frozen=True)
class Done:
    number: int
    value: Any


@dataclass(frozen=True)
class Refused:
    """The call failed with an error of our own tree; the child is sound."""

    number: int
    error: SparsesmithError


@dataclass(frozen=True)
class Ending:
    """The child's last word."""

    number: int
    outcome: Crashed | Mismatch


Reply = Done | Refused | Ending


class DeviceDoesNotStart(Unavailable):
    """No child gets the device up: the GPU hangs, is gone, or is held by a process that nothing can kill."""


class Ended(Exception):
    """The child is gone; the outcome is what the candidate gets."""

    def __init__(self, outcome: RunFailure) -> None:
        super().__init__(outcome.message)
        self.outcome: RunFailure = outcome


STAGE_PATIENCE_S = 1.0
"""A stage that was begun may take this long whatever the job's allowance says: killing its process costs more."""
LOOK_S = 0.25
"""After that the allowance is asked this often."""

BURIAL_S = 10
"""A child that hangs in its driver is not waited for longer."""


class Child:
    """The parent's end of one child process."""

    def __init__(self, factory: DeviceFactory, known: DeviceDescription | None = None) -> None:
        context = _context_for(factory)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, factory, known), daemon=True)
        self._process.start()
        theirs.close()
        self._number = 0
        self._description: DeviceDescription | None = None
        self.workload: Workload | None = None
        """The one that it has open."""
        self.opening: Open | None = None
        """The batch that it has begun."""
        self.has_drawn = False
        """The batch's inputs."""

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
            reply = self._receive(0, "starting the device", limit_s)
        except Ended as ended:
            self.kill()
            raise DeviceDoesNotStart(f"the device does not start: {ended.outcome.message}") from ended
        if not isinstance(reply, Done):
            self.kill()
            raise DeviceDoesNotStart(f"the device does not start: {reply}")
        self._description = reply.value

    def request_of(self, opening: Open) -> Open:
        """What begins a batch here: without the pattern where the workload is open."""
        is_known = self.workload == opening.workload
        return Open(opening.workload, None) if is_known else opening

    def note_opened(self, opening: Open | None) -> None:
        """The batch that it has begun, whose inputs are not drawn yet; None while it is not known whether it has."""
        self.workload = None if opening is None else opening.workload
        self.opening, self.has_drawn = opening, False

    def exchange(self, body: Open | Call, stage: str, limit_s: float, allowance: Allowance = UNHURRIED) -> Reply:
        """One call and its reply. Raises Ended, BudgetSpent, Stopped."""
        self._number += 1
        try:
            parcels.send(self._connection, Request(self._number, body), self._process.pid or 0)
        except OSError:
            raise Ended(Crashed(message=self._obituary(stage))) from None
        return self._receive(self._number, stage, limit_s, allowance)

    def _receive(self, number: int, stage: str, limit_s: float, allowance: Allowance = UNHURRIED) -> Reply:
        deadline = time.monotonic() + limit_s
        look_s = STAGE_PATIENCE_S
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                if self._connection.poll(min(left_s, look_s)):
                    reply: Reply = self._connection.recv()
                    if reply.number == number:
                        return reply
                else:
                    allowance.check(stage)
                    look_s = LOOK_S
        except (EOFError, OSError, pickle.UnpicklingError):
            raise Ended(Crashed(message=self._obituary(stage))) from None
        message = f"{stage}: not done within {limit_s:.4g} s; the process was killed"
        raise Ended(TimedOut(stage="run", limit_s=limit_s, message=message))

    def _obituary(self, stage: str) -> str:
        self._process.join(5)
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"{stage}: the device's process was ended by {signal.Signals(-code).name}"
        return f"{stage}: the device's process ended with exit code {code}"

    def kill(self) -> None:
        """Does not wait for its end: the driver takes its time to clear up."""
        self._process.kill()
        self._connection.close()

    def bury(self) -> None:
        """Waits a while for the end of a child that was killed."""
        self._process.join(BURIAL_S)


def _context_for(factory: DeviceFactory) -> "SpawnContext | ForkServerContext":
    preloaded: tuple[str, ...] = getattr(factory, PRELOADED, ())
    if not preloaded or sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preloaded))
    return context


def _serve(connection: Connection, factory: DeviceFactory, known: DeviceDescription | None) -> None:
    """The child: answers calls until the pipe closes or the device cannot be trusted any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_parent()
    number = 0
    try:
        device = factory(known)
        description = device.description()
        device.settle()
        connection.send(Done(0, description))
        servant = _Servant(device)
        while True:
            request: Request = parcels.receive(connection)
            number = request.number
            connection.send(servant.answer(request))
    except EOFError:
        return
    except MemoryDamaged as error:
        connection.send(Ending(number, damage(error)))
    except DeviceLost as error:
        connection.send(Ending(number, Crashed(message=str(error))))
    except Exception as error:  # The sandbox's broad catch: whatever ended the child becomes the candidate's outcome.
        traceback.print_exc(file=sys.stderr)
        connection.send(Ending(number, Crashed(message=f"{type(error).__name__}: {error}")))
    # No clean-up: a lost CUDA context can hang in its destructors.
    sys.stderr.flush()
    os._exit(1)


class _Servant:
    """Keeps the workbench of the workload that was opened last."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._workbench: LocalWorkbench | None = None

    def answer(self, request: Request) -> Reply:
        """Nothing of it is under way on the device any more. What raises ends the child."""
        reply = self._reply(request)
        self._device.settle()
        return reply

    def _reply(self, request: Request) -> Reply:
        try:
            match request.body:
                case Open() as opening:
                    self._open(opening)
                    return Done(request.number, None)
                case Call(stage=stage, arguments=arguments):
                    return Done(request.number, getattr(self._workbench, stage)(*arguments))
        except SparsesmithError as error:
            return Refused(request.number, error)

    def _open(self, opening: Open) -> None:
        workload, problem = opening.workload, opening.problem
        if self._workbench is not None and problem is None and self._workbench.workload == workload:
            self._workbench.begin_batch()
            return
        if self._workbench is not None:
            self._workbench.close()
            self._workbench = None
        if problem is None:
            raise DeviceLost("the workload is not open")
        self._workbench = LocalWorkbench(self._device, problem)


def _die_with_parent() -> None:
    """On Linux the child is killed when the thread that started it ends, even while a kernel hangs.

    A child that was forked from the process of `PRELOADED` dies with that, which ends when the parent does.
    """
    if sys.platform == "linux":
        parent_pid, pr_set_pdeathsig = os.getppid(), 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(1)
