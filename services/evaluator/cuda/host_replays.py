"""As `replays`, of any operation: products run again right behind the timed ones, one entry of an input changed before
each (`host_draws`), and one with everything new. What is right was found on the host before any program ran.

What it does not protect against: what `checking.changes` names.
"""

import secrets

from services.evaluator.checking.correctness import judge
from services.evaluator.cuda.host_draws import DeviceChange, HostDraws
from services.evaluator.cuda.launch import cuda_errors
from services.evaluator.cuda.own_kernels import LATE_LEAD_US, DeviceKernels
from services.evaluator.cuda.program import DeviceProgram, LaunchSequence
from services.evaluator.cuda.replays import MAX_OUTPUT_BYTES, MAX_UNCHANGED
from services.evaluator.cuda.residents import HeldDraws
from services.evaluator.cuda.timed_sequence import TimedSequence
from services.evaluator.device import Draw, Ran, Starts
from sparsesmith_proto.kernel import Mismatch


class HostReplays:
    """Of one program that was timed on a draw, its memory as the timed products left it."""

    def __init__(
        self, program: DeviceProgram, draw: Draw, source: HostDraws, held: HeldDraws, kernels: DeviceKernels
    ) -> None:
        self._program = program
        self._now = draw
        """What the inputs are copies of, but for what was changed since."""
        self._changed: list[DeviceChange] = []
        self._source = source
        self._held = held
        self._kernels = kernels
        self._problem = ""
        self._renewed: Draw | None = None

    def change(self, number: int, timed: TimedSequence, sequence: LaunchSequence) -> None:
        """Runs and verifies so many changed products at most; waits for the stream."""
        changes = self._source.changed[:number]
        at_once = max(1, MAX_OUTPUT_BYTES // max(self._program.output_bytes, 1))
        for start in range(0, len(changes), at_once):
            some = changes[start : start + at_once]
            with self._held.hidden(), cuda_errors():
                outputs = [self._changed_product(change, timed, sequence) for change in some]
            self._changed += some
            for change, output in zip(some, outputs, strict=True):
                self._verify(f"one entry of {change.operand} changed", output, change.draw)

    def repeat(self) -> None:
        """The traffic of `renew`, and nothing new, on the stream: inputs are copied again from where they came. Written
        in place they would lie in the L2 where what is copied from would have driven them out."""
        self._program.refill(self._now)
        for change in self._changed:
            self._program.put(change.operand, change.index, change.value)

    def renew(self) -> None:
        """Everything new in the inputs, outputs and scratch poisoned, on the stream."""
        self._renewed = self._now = self._source.next_fresh(self._renewed)
        self._changed = []
        self._program.renew_from(self._now)

    def verify_renewed(self) -> None:
        """Verifies the last product, which was on renewed inputs; waits for the stream."""
        if self._renewed is not None:
            self._verify("new inputs", self._program.outputs(), self._renewed)

    def problem(self) -> str:
        """What is wrong with the first result that is wrong; empty where all are right."""
        return self._problem

    def _changed_product(self, change: DeviceChange, timed: TimedSequence, sequence: LaunchSequence) -> Starts:
        for _ in range(secrets.randbelow(MAX_UNCHANGED + 1)):
            timed.product(self._kernels.stream.ptr)
        if not sequence.starts_early:
            self._program.put(change.operand, change.index, change.value)
            timed.single.launch()
        elif change.operand in self._program.late_inputs:
            self._program.restore()
            # So that the program is queued before the change is made.
            self._kernels.delay(LATE_LEAD_US)
            self._kernels.write_late(self._program.late_write(change.operand, change.index, change.value))
            sequence.enqueue(self._kernels.stream.ptr)
        else:
            # Values may be read before the program waits: nothing that it may overlap with changes them.
            self._program.put(change.operand, change.index, change.value)
            self._program.restore()
            self._kernels.emptiness().enqueue(self._kernels.stream.ptr)
            sequence.enqueue(self._kernels.stream.ptr)
        return self._program.outputs()

    def _verify(self, what: str, outputs: Starts, right: Draw) -> None:
        verdict = judge(Ran(outputs, guards_intact=True, inputs_intact=True), right)
        if isinstance(verdict, Mismatch) and not self._problem:
            self._problem = (
                f"run again behind the timed products with {what}: {verdict.message}: it does not do the whole work "
                "every time"
            )
