"""The device in a process of its own: what a kernel does to it ends that process and no other.

The parent never touches the device. It sends one numbered call at a time over a pipe and waits no longer than the
stage's limit; a child that is late is killed, one that died or whose device is lost is buried, and in each case the
candidate gets its outcome and the next call a fresh child. A reply is taken from the pipe of the child that was asked
and only under the number that was asked, so an answer can never be attributed to another kernel.

What it does not protect against: another process of the same user on the same GPU, and defects of the driver that
outlive a process. No host code of a candidate runs anywhere: the child runs our code and device code.
"""

import logging
import math
import secrets
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

from services.evaluator.allowance import UNHURRIED, Allowance, BudgetSpent, Stopped
from services.evaluator.checking.correctness import Correct
from services.evaluator.checking.repetition import Bits
from services.evaluator.compiling.compiler import Compiled
from services.evaluator.device import Inspected, RunFailure, Timing
from services.evaluator.gpu_turn import NO_TURNS, Turns
from services.evaluator.isolation.child import Call, Child, DeviceFactory, Done, Ended, Ending, Open, Refused, Reply
from services.evaluator.isolation.spares import NO_SPARES, Demand, SpareLimits, Spares, Warmth
from services.evaluator.isolation.workbench import Built, FinalTimes
from sparsesmith.errors import SparsesmithError, Unavailable
from sparsesmith.operations import Problem
from sparsesmith.operations.operation import adverse_draws
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.evaluation import LaunchProfile
from sparsesmith_proto.kernel import (
    AdverseTiming,
    Baselines,
    Crashed,
    DeviceDescription,
    Mismatch,
    Rejected,
    Repeats,
)

logger = logging.getLogger(__name__)

OTHER_CONTEXT = "another context gave other bits for equal inputs: deterministic=true asks for the same"


@dataclass(frozen=True)
class StageLimits:
    """Wall time of each stage in seconds; a child that takes longer is killed."""

    start_s: float = 600
    """Imports, the device's context, just-in-time compilation of our own code: minutes where others work."""
    open_s: float = 120
    """Upload of a workload."""
    baselines_s: float = 300
    build_s: float = 60
    draw_s: float = 180
    """Inputs of a batch and reference results, on the host: no kernel runs meanwhile."""
    check_s: float = 60
    time_s: float = 60


MAX_WARMED_ELEMENTS = 5_000_000
"""Nonzeros and entries of the vectors: a larger workload is opened in a spare child only when that is needed."""


class DeviceProcess:
    """A device in a child process that is replaced whenever it ends. Use from one thread.

    With `spares`, others wait ready, so that a candidate that kills its child costs the next one no start: a few as a
    rule, more where kernels end children, in this batch or in those before (`spares.Demand`).

    Where others use the device, too, each call that touches it has its turn, from the child's first byte to its reply;
    so has each start, and a child that is killed is gone before the turn is handed on.
    """

    def __init__(
        self,
        factory: DeviceFactory,
        limits: StageLimits,
        *,
        spares: SpareLimits = NO_SPARES,
        is_confined: bool = False,
        turns: Turns = NO_TURNS,
    ) -> None:
        self._factory = factory
        self._turns = turns
        self.is_confined = is_confined
        """Whether the factory confines the process that it is called in."""
        self._limits = limits
        self._most_spares = spares.most
        self._child: Child | None = None
        self._spares: Spares | None = None
        self._witness: Child | None = None
        """A second context, where equal bits are promised."""
        self._demand = Demand(spares)
        self._warmth = Warmth()
        self._description: DeviceDescription | None = None
        self._allowance = UNHURRIED
        self.num_started = 0

    def start(self) -> DeviceDescription:
        """Starts the child and waits for its device. Raises Unavailable."""
        self._running_child()
        return self.description()

    def description(self) -> DeviceDescription:
        if self._description is None:
            self._description = self._running_child().description
        return self._description

    def open(self, problem: Problem, allowance: Allowance = UNHURRIED) -> "SandboxedWorkbench":
        """A workbench for a new batch. The one returned before must not be used any more.

        Its stages raise BudgetSpent and Stopped as the allowance says; the child that was at work is gone then.
        """
        self._demand.next_batch()
        self._warmth, self._allowance = Warmth(), allowance
        if self._spares is not None:
            self._spares.trim(self._demand.number)
        return SandboxedWorkbench(self, self._limits, Open(problem.workload, problem))

    def close(self) -> None:
        """Ends the children. Safe to call twice."""
        for child in filter(None, (self._child, self._witness)):
            child.kill()
            child.bury()
        if self._spares is not None:
            self._spares.close()
        self._child = self._spares = self._witness = None

    def is_running(self) -> bool:
        return self._child is not None and self._child.is_alive()

    def turn(self) -> AbstractContextManager[None]:
        """For what uses the device beside the child, on behalf of the batch in hand."""
        return self._turns.taken(self._allowance.waits)

    def _opened_child(self, opening: Open) -> Child:
        child = self._running_child()
        if child.opening is not opening:
            body = child.request_of(opening)
            child.note_opened(None)
            self._exchange(child, body, "opening the workload", self._limits.open_s)
            child.note_opened(opening)
        return child

    def _ask(self, opening: Open, call: Call, limit_s: float) -> Any:
        """The value of a stage. Raises Ended where the child did not survive it, Unavailable where none starts,
        BudgetSpent and Stopped as the allowance says, before a stage begins or when it lasts."""
        if call.stage != "unload":
            self._allowance.check(call.stage)
        try:
            child = self._opened_child(opening)
        except Ended as ended:
            raise Unavailable(f"the device does not take the workload: {ended.outcome.message}") from ended
        return self._exchange(child, call, call.stage, limit_s)

    def _testify(self, opening: Open, call: Call, limit_s: float) -> Any:
        """The value of a stage in the second context. Raises Ended where that did not survive it, SparsesmithError
        where it cannot be had, BudgetSpent and Stopped."""
        self._allowance.check(call.stage)
        if self._witness is None or not self._witness.is_alive():
            self._witness = self._next_child()
            self._prepare(Warmth())
        with self.turn():
            try:
                return self._testified(self._witness, opening, call, limit_s)
            except (Ended, BudgetSpent, Stopped):
                self._end(self._witness)
                self._witness = None
                raise

    def _testified(self, witness: Child, opening: Open, call: Call, limit_s: float) -> Any:
        if witness.opening is not opening:
            body = witness.request_of(opening)
            witness.note_opened(None)
            _value_of(witness.exchange(body, "opening the workload", self._limits.open_s, self._allowance))
            witness.note_opened(opening)
        return _value_of(witness.exchange(call, call.stage, limit_s, self._allowance))

    def _draw(self, opening: Open) -> None:
        """Once for each child. Raises as `_ask`."""
        if not (self.is_running() and self._opened_child(opening).has_drawn):
            self._ask(opening, Call("draw"), self._limits.draw_s)
            self._opened_child(opening).has_drawn = True

    def _warm_spares(self, opening: Open, calls: Sequence[tuple[Call, float]]) -> None:
        """Spare children that this batch comes to need have done this much when they are taken."""
        problem = opening.problem
        if problem is None or problem.nnz + problem.num_elements > MAX_WARMED_ELEMENTS:
            return
        drawing = (Call("draw"), self._limits.draw_s)
        self._warmth = Warmth(opening, (*calls, drawing), self._limits.open_s)

    def _renew_spares(self) -> None:
        """Where kernels ended children before, those that wait are made warm for this batch before it needs them."""
        if self._demand.is_raised and self._spares is not None:
            self._spares.renew(self._demand.number, self._warmth)
            self._prepare(self._warmth)

    def _exchange(self, child: Child, body: Open | Call, stage: str, limit_s: float) -> Any:
        with self._turns.taken_for(stage, self._allowance.waits):
            if self._turns.is_shared and stage != "unload":
                self._allowance.check(stage)  # It may have waited for long.
            try:
                reply = child.exchange(body, stage, limit_s, self._allowance)
            except BaseException:  # A signal's among them: what the child is at must not go on beside another's turn.
                self._discard(child)
                raise
            if isinstance(reply, Ending):
                self._discard(child)
        return _value_of(reply)

    def _running_child(self) -> Child:
        if self._child is None or not self._child.is_alive():
            self._child = self._next_child()
            self.num_started += 1
            self._prepare(self._warmth if self._demand.is_raised else Warmth())
            self._renew_spares()
        return self._child

    def _next_child(self) -> Child:
        """Raises DeviceDoesNotStart."""
        spare = None if self._spares is None else self._taken(self._spares)
        if spare is not None:
            return spare
        with self.turn():
            child = Child(self._factory, self._description)
            child.wait_until_ready(self._limits.start_s)
        self._description = self._description or child.description
        return child

    def _taken(self, spares: Spares) -> Child | None:
        began = time.monotonic()
        child = spares.take(self._warmth.opening)
        if self._turns.is_shared:  # One that is still to come stands in line itself.
            self._allowance.waits.add(time.monotonic() - began)
        return child

    def _prepare(self, warmth: Warmth) -> None:
        if self._most_spares == 0:
            return
        if self._spares is None:
            make = partial(Child, self._factory, self._description)
            self._spares = Spares(make, self._limits.start_s, self._most_spares, self._turns)
        self._spares.prepare(self._demand.number, warmth)

    def _discard(self, child: Child) -> None:
        self._end(child)
        self._child = None
        self._demand.note_ended()
        if self._spares is None:
            child.bury()
        else:
            self._spares.bury(child)

    def _end(self, child: Child) -> None:
        """Of one whose turn it is: nobody else may use the device before it is gone."""
        child.kill()
        if self._turns.is_shared:
            child.bury()


class SandboxedWorkbench:
    """`workbench.Workbench` across the process boundary: a child that ends is an outcome."""

    def __init__(self, process: DeviceProcess, limits: StageLimits, opening: Open) -> None:
        self._process = process
        self._limits = limits
        self._opening = opening
        self._kernels: dict[str, _CheckedKernel] = {}
        self._ahead: dict[str, KernelProgram] = {}
        """Programs whose formats are built ahead and that have not had their turn, by source."""
        self._ahead_s = 0.0
        process._warm_spares(opening, ())

    def description(self) -> DeviceDescription:
        return self._process.description()

    def baselines(self) -> Baselines:
        """Raises Unavailable where the device does not survive them."""
        try:
            baselines: Baselines = self._ask(Call("baselines"), self._limits.baselines_s)
        except Ended as ended:
            raise Unavailable(f"timing the baselines failed: {ended.outcome.message}") from ended
        return baselines

    def build(self, program: KernelProgram) -> Built | Rejected | RunFailure:
        if self._ahead.pop(program.source, None) is not None:
            self._warm_spares()
        outcome: Built | Rejected | RunFailure = self._outcome(Call("build", (program,)), self._limits.build_s)
        return outcome

    def build_first(self, program: KernelProgram) -> Built | Rejected | RunFailure:
        outcome: Built | Rejected | RunFailure = self._outcome(Call("build_first", (program,)), self._limits.build_s)
        return outcome

    def build_ahead(self, programs: Sequence[KernelProgram], limit_s: float) -> None:
        """What is not ready when the stage's limit is over is built when it is asked for."""
        self._ahead = {program.source: program for program in programs}
        self._ahead_s = limit_s
        self._warm_spares()
        self._outcome(Call("build_ahead", (tuple(programs), limit_s)), limit_s + self._limits.build_s)
        self._process._renew_spares()  # Not beside the child at work: both build on all cores.

    def draw(self) -> None:
        """Once for each child that the batch comes to. Raises Unavailable where the device does not survive it."""
        try:
            self._process._draw(self._opening)
        except Ended as ended:
            raise Unavailable(f"drawing the inputs failed: {ended.outcome.message}") from ended

    def check(self, kernel_id: str, program: KernelProgram, binary: Compiled) -> Correct | Rejected | RunFailure:
        self.draw()
        call = Call("check", (kernel_id, program, binary))
        verdict: Correct | Rejected | RunFailure = self._outcome(call, self._limits.check_s)
        if isinstance(verdict, Correct):
            self._kernels[kernel_id] = _CheckedKernel(program, binary, self._process.num_started)
        return verdict

    def time(self, kernel_id: str, vouched_to_us: float = math.inf) -> Timing | RunFailure:
        outcome: Timing | RunFailure = self._outcome(Call("time", (kernel_id, vouched_to_us)), self._limits.time_s)
        return outcome

    def time_adverse(self, kernel_id: str) -> AdverseTiming | RunFailure | None:
        problem = self._opening.problem
        if problem is None or not adverse_draws(problem.operation):
            return None
        outcome: AdverseTiming | RunFailure | None = self._outcome(
            Call("time_adverse", (kernel_id,)), self._limits.time_s
        )
        return outcome

    def retime(self, kernel_ids: Sequence[str], routine: str) -> FinalTimes | RunFailure:
        """Kernels that were loaded in a child that has ended are loaded and checked again."""
        for kernel_id in kernel_ids:
            kernel = self._kernels[kernel_id]
            if kernel.child != self._process.num_started or not self._process.is_running():
                verdict = self.check(kernel_id, kernel.program, kernel.binary)
                if not isinstance(verdict, Correct):
                    return Crashed(message=f"{kernel_id} did not pass a second time: {verdict.message}")
        call = Call("retime", (tuple(kernel_ids), routine))
        final: FinalTimes | RunFailure = self._outcome(call, self._limits.time_s)
        return final

    def begin(self) -> None:
        """Opens the workload now, not with the first stage. Raises Unavailable, LimitExceeded."""
        try:
            self._process._opened_child(self._opening)
        except Ended as ended:
            raise Unavailable(f"the device does not take the workload: {ended.outcome.message}") from ended

    def draw_first(self) -> None:
        """Raises Unavailable where the device does not survive it."""
        try:
            self._ask(Call("draw_first"), self._limits.draw_s)
        except Ended as ended:
            raise Unavailable(f"drawing an input failed: {ended.outcome.message}") from ended

    def check_first(self, program: KernelProgram, binary: Compiled) -> Correct | Rejected | RunFailure:
        verdict: Correct | Rejected | RunFailure = self._outcome(
            Call("check_first", (program, binary)), self._limits.check_s
        )
        return verdict

    def inspect(self, program: KernelProgram, binary: Compiled) -> Inspected | Rejected | RunFailure:
        """See `LocalWorkbench.inspect`."""
        found: Inspected | Rejected | RunFailure = self._outcome(
            Call("inspect", (program, binary)), self._limits.check_s
        )
        return found

    def repeat(self, program: KernelProgram, binary: Compiled) -> Repeats | Rejected | RunFailure:
        """In the child at work and in another that stands aside: where no other can be had, in one context."""
        call = Call("bits", (program, binary, secrets.randbits(128)))
        here: Bits | Rejected | RunFailure = self._outcome(call, self._limits.check_s)
        if not isinstance(here, Bits):
            return here
        try:
            there: Bits | Rejected | RunFailure = self._process._testify(self._opening, call, self._limits.check_s)
        except Ended as ended:
            return ended.outcome
        except (BudgetSpent, Stopped):
            raise
        except SparsesmithError as error:
            logger.warning("equal bits are checked in one context alone: %s", error)
            return Repeats(runs=here.runs, contexts=1)
        if not isinstance(there, Bits):
            return there
        if here.digest != there.digest:
            return Mismatch(message=OTHER_CONTEXT)
        return Repeats(runs=here.runs + there.runs, contexts=2)

    def bits(
        self, program: KernelProgram, binary: Compiled, seed: int, runs: int, limit_s: float
    ) -> Bits | Rejected | RunFailure:
        """See `LocalWorkbench.bits`, in the child at work."""
        found: Bits | Rejected | RunFailure = self._outcome(Call("bits", (program, binary, seed, runs)), limit_s)
        return found

    def profile(self, kernel_id: str, program: KernelProgram, binary: Compiled) -> tuple[LaunchProfile, ...]:
        """Empty where the device does not survive it: a profile is never a reason to fail."""
        found: tuple[LaunchProfile, ...] | RunFailure = self._outcome(
            Call("profile", (kernel_id, program, binary)), self._limits.build_s
        )
        return found if isinstance(found, tuple) else ()

    def unload(self, kernel_id: str) -> None:
        kernel = self._kernels.pop(kernel_id, None)
        if kernel is not None and kernel.child == self._process.num_started:
            self._outcome(Call("unload", (kernel_id,)), self._limits.build_s)

    def _warm_spares(self) -> None:
        """A spare child builds what is still to come, not what was graded before."""
        call = Call("build_ahead", (tuple(self._ahead.values()), self._ahead_s))
        self._process._warm_spares(self._opening, [(call, self._ahead_s + self._limits.build_s)])

    def _ask(self, call: Call, limit_s: float) -> Any:
        return self._process._ask(self._opening, call, limit_s)

    def _outcome(self, call: Call, limit_s: float) -> Any:
        try:
            return self._ask(call, limit_s)
        except Ended as ended:
            return ended.outcome


def _value_of(reply: Reply) -> Any:
    """Raises SparsesmithError, Ended."""
    match reply:
        case Done(value=value):
            return value
        case Refused(error=error):
            raise error
        case Ending(outcome=outcome):
            raise Ended(outcome)
        case _:
            assert_never(reply)


@dataclass(frozen=True, eq=False)
class _CheckedKernel:
    """What it takes to load a kernel again, and the number of the child that it is loaded in."""

    program: KernelProgram
    binary: Compiled
    child: int
