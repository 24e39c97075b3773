"""A kernel program on a GPU: run on a draw, timed, vouched for, run again as it was timed."""

import math
import secrets
from collections.abc import Callable, Sequence

from cupy.cuda import memory

from services.evaluator.cuda.arena import Placement, Segment, random_placement
from services.evaluator.cuda.draws import DeviceDraws
from services.evaluator.cuda.host_draws import HostDraws
from services.evaluator.cuda.host_replays import HostReplays
from services.evaluator.cuda.launch import Enqueue, LaunchRefused, cuda_errors
from services.evaluator.cuda.own_kernels import DeviceKernels
from services.evaluator.cuda.program import DeviceProgram, LaunchSequence
from services.evaluator.cuda.replays import FEW, Replays
from services.evaluator.cuda.residents import HeldDraws
from services.evaluator.cuda.timed_sequence import Instruments, RestoredSequence, TimedSequence
from services.evaluator.device import Draw, Ran, RunFailure, Starts
from services.evaluator.measuring.interval import QUICK, ByteFloor, TimingBudget, is_suspicious, runs_within
from sparsesmith_proto.kernel import Crashed, MeasuredTiming, Mismatch

_FRESH_TRIES = ((2, 80.0), (4, 300.0), (9, 2000.0))
"""Runs of each kind, and the microseconds that the host has to queue each. A busy host may not have queued a run when
the GPU is ready for it: a suspicion is tried again with time enough, and only then believed."""


class CudaKernel:
    """Implements the LoadedKernel protocol. Raises DeviceLost from any method when the CUDA context is gone."""

    def __init__(
        self,
        program: DeviceProgram,
        source: DeviceDraws | HostDraws,
        draws: HeldDraws,
        kernels: DeviceKernels,
        instruments: Instruments,
        floor: Callable[[], ByteFloor],
        brief_placement: Placement,
    ) -> None:
        """`brief_placement`: shared by all kernels that are compared by their brief times."""
        self._program: DeviceProgram | None = program
        self._source = source
        self._draws = draws
        self._kernels = kernels
        self._instruments = instruments
        self._floor = floor
        self._brief_placement = brief_placement
        self._timed: TimedSequence | None = None
        self._sequence: LaunchSequence | None = None
        self.brief_us = math.inf
        """What it took when it was timed briefly; infinite before."""

    def run(self, draw: Draw, start: Starts | None) -> Ran | RunFailure:
        """See LoadedKernel.run."""
        program = self._open_program()
        self._timed = None
        program.place(random_placement())
        if start is None and secrets.randbelow(2):
            self._kernels.litter(secrets.randbits(62) + 2)
        if secrets.randbelow(2):
            program.scatter_scratch()
        sequence = program.sequence()
        if not sequence.starts_early:
            return self._run(program, draw, start, sequence.enqueue)
        other = self._draws.another(draw) if secrets.randbelow(2) else None
        return self._run(program, draw, start, program.behind_late_writes(sequence, draw, start, other))

    def time(self, draw: Draw, vouched_to_us: float = math.inf) -> MeasuredTiming | RunFailure:
        """See LoadedKernel.time."""
        timing = self._timed_briefly(draw)
        if not isinstance(timing, MeasuredTiming):
            return timing
        self.brief_us = timing.median_us
        if timing.median_us <= vouched_to_us:
            return self.vouched(timing, draw, QUICK, FEW)
        problem = self._plain_problem(timing)
        return Mismatch(message=problem) if problem else timing

    def time_on(self, draw: Draw) -> MeasuredTiming | RunFailure:
        """See LoadedKernel.time_on."""
        timing = self._timed_briefly(draw)
        if not isinstance(timing, MeasuredTiming):
            return timing
        problem = self._plain_problem(timing)
        return Mismatch(message=f"on {draw.name} inputs: {problem}") if problem else timing

    def _timed_briefly(self, draw: Draw) -> MeasuredTiming | Crashed:
        try:
            timed = self.timed_sequence(draw, QUICK, self._brief_placement)
            with self._draws.hidden():
                return timed.measure(QUICK)
        except LaunchRefused as refusal:
            return _refused(refusal)

    def _plain_problem(self, timing: MeasuredTiming) -> str:
        """What was written that must not be, or a time that cannot be: without a run more."""
        return _described(self._damage(self._open_program())) or self._floor_problem(timing)

    def timed_sequence(self, draw: Draw, budget: TimingBudget, placement: Placement) -> TimedSequence:
        """The program on a draw at a placement, captured and ready to be timed.

        Raises LaunchRefused.
        """
        program = self._open_program()
        program.place(placement)
        program.fill(draw, None)
        program.arena.seal()
        sequence = program.sequence()
        with self._draws.hidden(), cuda_errors():
            # Once outside a graph: a kernel that is loaded lazily cannot be loaded during capture.
            sequence.enqueue(self._kernels.stream.ptr)
            self._kernels.stream.synchronize()
            self._timed = self._captured(program, sequence, budget)
        self._sequence = sequence
        return self._timed

    def _captured(self, program: DeviceProgram, sequence: LaunchSequence, budget: TimingBudget) -> TimedSequence:
        if program.changes_in_place:
            return RestoredSequence(sequence.enqueue, program.restore, self._instruments, budget)
        return TimedSequence(sequence.enqueue, self._instruments, budget)

    def vouched(
        self, timing: MeasuredTiming, draw: Draw, budget: TimingBudget, num_changes: int
    ) -> MeasuredTiming | RunFailure:
        """The timing of what was timed last, if it can be believed.

        It is above the byte floor, nothing was written that must not be, products with one entry changed are right, and
        a product with everything new takes no longer than one with everything as it was left. To be called while the
        program's memory is as the timed products left it.
        """
        if self._timed is None or self._sequence is None:
            raise RuntimeError("vouched() needs timed_sequence() before it, and no run() between")
        program = self._open_program()
        program.arena.look()
        problem = self._floor_problem(timing)
        try:
            if not problem:
                replays = self._replays(program, draw)
                replays.change(num_changes, self._timed, self._sequence)
                problem = self._suspicion(self._timed, timing, budget, replays)
                replays.verify_renewed()
                problem = replays.problem() or problem
        except LaunchRefused as refusal:
            return _refused(refusal)
        except memory.OutOfMemoryError as error:
            return Crashed(message=f"no memory is left to run it again: {error}")
        problem = _described(program.arena.changed()) or problem
        return Mismatch(message=problem) if problem else timing

    def replay(self, draw: Draw, start: Starts) -> Ran | RunFailure:
        """See LoadedKernel.replay."""
        if self._timed is None:
            raise RuntimeError("replay() needs time() before it, and no run() between")
        graph = self._timed.warm.graph
        return self._run(self._open_program(), draw, start, lambda stream: graph.launch())

    def close(self) -> None:
        """See LoadedKernel.close."""
        self._timed = None
        self._program = None

    def _open_program(self) -> DeviceProgram:
        if self._program is None:
            raise RuntimeError("the kernel was closed")
        return self._program

    def _run(self, program: DeviceProgram, draw: Draw, start: Starts | None, enqueue: Enqueue) -> Ran | RunFailure:
        program.fill(draw, start)
        program.arena.seal()
        try:
            with self._draws.hidden(), cuda_errors():
                enqueue(self._kernels.stream.ptr)
        except LaunchRefused as refusal:
            return _refused(refusal)
        outputs = program.outputs()
        damage = self._damage(program)
        return Ran(
            outputs=outputs,
            guards_intact=not any(segment.is_guard for segment in damage),
            inputs_intact=all(segment.is_guard for segment in damage),
        )

    def _damage(self, program: DeviceProgram) -> tuple[Segment, ...]:
        """What changed since the seal that must not; waits for the stream."""
        program.arena.look()
        return program.arena.changed()

    def _floor_problem(self, timing: MeasuredTiming) -> str:
        floor = self._floor()
        if timing.median_us < floor.warm_us:
            return _below_floor("warm", timing.median_us, floor.warm_us, floor.required_bytes)
        if timing.cold_us < floor.cold_us:
            return _below_floor("cold", timing.cold_us, floor.cold_us, floor.required_bytes)
        return ""

    def _replays(self, program: DeviceProgram, draw: Draw) -> Replays | HostReplays:
        if isinstance(self._source, HostDraws):
            return HostReplays(program, draw, self._source, self._draws, self._kernels)
        return Replays(program, draw, self._source, self._draws, self._kernels)

    def _suspicion(
        self, timed: TimedSequence, timing: MeasuredTiming, budget: TimingBudget, replays: Replays | HostReplays
    ) -> str:
        """Why single runs say that work is skipped when repeated; the last run was on a new x. Empty: they do not."""
        stopwatch = self._instruments.stopwatch
        stale_us = fresh_us = 0.0
        for most, lead_us in _FRESH_TRIES:
            runs = runs_within(most, timing.median_us, budget)
            with self._draws.hidden():
                turns = stopwatch.in_turns_us(timed.single, (replays.repeat, replays.renew), runs, lead_us)
            stale_us, fresh_us = map(min, turns)
            if not is_suspicious(fresh_us, stale_us, stopwatch.empty_single_us):
                return ""
        return (
            f"takes {stale_us:.2f} us on an input it has seen and {fresh_us:.2f} us on a new one: "
            "it does not do the whole work every time"
        )


def _refused(refusal: LaunchRefused) -> Crashed:
    return Crashed(message=f"the launch was refused: {refusal}")


def _described(damage: Sequence[Segment]) -> str:
    if not damage:
        return ""
    places = ", ".join(f"the guard {segment.label}" if segment.is_guard else segment.label for segment in damage)
    return f"while it was timed it wrote into {places}"


def _below_floor(state: str, measured_us: float, floor_us: float, required_bytes: int) -> str:
    return (
        f"{state} time {measured_us:.3f} us is below {floor_us:.3f} us, the least in which this GPU can move the "
        f"{required_bytes} bytes that every product needs: a measuring error or work left out"
    )
