"""A kernel program on a GPU: run on a draw, timed, run again as it was timed."""

import secrets
from collections.abc import Sequence
from statistics import median

from services.evaluator.cuda.arena import Segment
from services.evaluator.cuda.launch import Enqueue, LaunchRefused, cuda_errors
from services.evaluator.cuda.own_kernels import DeviceKernels
from services.evaluator.cuda.program import DeviceProgram
from services.evaluator.cuda.residents import HeldDraws
from services.evaluator.cuda.stopwatch import SINGLE_LEAD_US
from services.evaluator.cuda.timed_sequence import Instruments, TimedSequence
from services.evaluator.device import Array, Draw, Ran, RunFailure
from services.evaluator.measuring.interval import QUICK, ByteFloor, TimingBudget, replays_suspiciously, runs_within
from sparsesmith_proto.kernel import Crashed, MeasuredTiming, Mismatch

_FRESH_TRIES = ((3, SINGLE_LEAD_US), (9, 2000.0))
"""Runs, and the microseconds that the host has to queue each. A busy host may not have queued a run when the GPU is
ready for it: a suspicion is tried again with time enough, and only then believed."""


class CudaKernel:
    """Implements the LoadedKernel protocol. Raises DeviceLost from any method when the CUDA context is gone."""

    def __init__(
        self,
        program: DeviceProgram,
        draws: HeldDraws,
        kernels: DeviceKernels,
        instruments: Instruments,
        floor: ByteFloor,
    ) -> None:
        self._program: DeviceProgram | None = program
        self._draws = draws
        self._kernels = kernels
        self._instruments = instruments
        self._floor = floor
        self._timed: TimedSequence | None = None

    def run(self, draw: Draw, start: Array | None) -> Ran | RunFailure:
        """See LoadedKernel.run."""
        program = self._open_program()
        self._timed = None
        program.place(shifted=True)
        sequence = program.sequence()
        early = sequence.starts_early
        enqueue = program.behind_late_writes(sequence, draw, start) if early else sequence.enqueue
        return self._run(program, draw, start, enqueue)

    def time(self, draw: Draw) -> MeasuredTiming | RunFailure:
        """See LoadedKernel.time."""
        try:
            sequence = self.timed_sequence(draw, QUICK)
            with self._draws.hidden():
                timing = sequence.measure(QUICK)
                damage = self._damage(self._open_program())
                suspicion = self._suspicion(sequence, timing, QUICK)
        except LaunchRefused as refusal:
            return _refused(refusal)
        problem = _described(damage) or suspicion
        return Mismatch(message=problem) if problem else timing

    def timed_sequence(self, draw: Draw, budget: TimingBudget, *, shifted: bool = False) -> TimedSequence:
        """The program on a draw at fixed addresses (random ones when shifted), captured and ready to be timed.

        Raises LaunchRefused.
        """
        program = self._open_program()
        program.place(shifted=shifted)
        program.fill(draw, None)
        program.arena.seal()
        sequence = program.sequence()
        with self._draws.hidden(), cuda_errors():
            # Once outside a graph: a kernel that is loaded lazily cannot be loaded during capture.
            sequence.enqueue(self._kernels.stream.ptr)
            self._kernels.stream.synchronize()
            self._timed = TimedSequence(sequence.enqueue, self._instruments, budget)
        return self._timed

    def replay(self, draw: Draw, start: Array) -> Ran | RunFailure:
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

    def _run(self, program: DeviceProgram, draw: Draw, start: Array | None, enqueue: Enqueue) -> Ran | RunFailure:
        program.fill(draw, start)
        program.arena.seal()
        try:
            with self._draws.hidden(), cuda_errors():
                enqueue(self._kernels.stream.ptr)
        except LaunchRefused as refusal:
            return _refused(refusal)
        output = program.output()
        damage = self._damage(program)
        return Ran(
            output=output,
            guards_intact=not any(segment.is_guard for segment in damage),
            inputs_intact=all(segment.is_guard for segment in damage),
        )

    def _damage(self, program: DeviceProgram) -> tuple[Segment, ...]:
        """What changed since the seal that must not; waits for the stream."""
        program.arena.look()
        return program.arena.changed()

    def _suspicion(self, sequence: TimedSequence, timing: MeasuredTiming, budget: TimingBudget) -> str:
        """Why the measured time cannot be believed; empty when it can."""
        if timing.median_us < self._floor.warm_us:
            return _below_floor("warm", timing.median_us, self._floor.warm_us, self._floor.required_bytes)
        if timing.cold_us < self._floor.cold_us:
            return _below_floor("cold", timing.cold_us, self._floor.cold_us, self._floor.required_bytes)
        stopwatch = self._instruments.stopwatch
        fresh_us = 0.0
        for most, lead_us in _FRESH_TRIES:
            runs = runs_within(most, timing.median_us, budget)
            fresh_us = median(stopwatch.single_us(sequence.single, self._renew_input, runs, lead_us))
            if not replays_suspiciously(fresh_us, stopwatch.empty_single_us, timing.median_us):
                return ""
        return (
            f"takes {timing.median_us:.2f} us on an input it has seen and {fresh_us:.2f} us on a new one: "
            "it does not do the whole work every time"
        )

    def _renew_input(self) -> None:
        self._open_program().renew_input(secrets.randbits(63))


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
