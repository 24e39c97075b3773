"""Products run again right behind the timed ones, one entry of A or of x changed before each; all are verified.

What a program keeps from one launch to the next (in its output, scratch, a stack, a place that nobody watches) is as
the timed products left it, and nearly all of its inputs are as they were: a program that skips work because its inputs
look the same, because it has done the work before, or in every second launch, gives the result of before. A change is
at a nonzero drawn evenly, so what share of the work is left out is also the chance that one product shows it. Values
and dense operand change in turns: a program that proves all of x to be as it was has not read A.

Between changed products stand up to two that nothing changed before, so that no count of launches tells which one is
looked at. A program that may start early is behind a change of x that comes late.

What it does not protect against: work left out in so small a share of the nonzeros that no change falls there.
"""

import secrets
from dataclasses import dataclass

import cupy
import numpy as np

from services.evaluator.cuda.changes import Made, Target
from services.evaluator.cuda.draws import DeviceDraws, system_key
from services.evaluator.cuda.launch import cuda_errors
from services.evaluator.cuda.own_kernels import LATE_LEAD_US, DeviceKernels, late_nanoseconds
from services.evaluator.cuda.program import DeviceProgram, LaunchSequence
from services.evaluator.cuda.residents import HeldDraws
from services.evaluator.cuda.timed_sequence import TimedSequence
from services.evaluator.device import Draw

FEW, MANY = 4, 12
"""Changed products behind a brief timing, which every candidate has, and behind a final one."""

MOST_VERIFIED = MANY + 1
"""Changed products and one with a new x."""

MAX_UNCHANGED = 2
"""Products before each changed one that nothing changed before."""

MAX_OUTPUT_BYTES = 1 << 30
"""Results that are held at once until they are verified."""


@dataclass(frozen=True)
class Found:
    """What is wrong with one result."""

    what: str
    """Was changed or renewed before it."""
    num_wrong: int
    num_entries: int
    first: int

    @property
    def message(self) -> str:
        """Empty where nothing is."""
        if not self.num_wrong:
            return ""
        return (
            f"run again behind the timed products with {self.what}: {self.num_wrong} of {self.num_entries} entries are "
            f"wrong, the first is entry {self.first}: it does not do the whole work every time"
        )


class Replays:
    """Of one program that was timed on a draw, its memory as the timed products left it."""

    def __init__(
        self, program: DeviceProgram, draw: Draw, source: DeviceDraws, held: HeldDraws, kernels: DeviceKernels
    ) -> None:
        """Raises cupy.cuda.memory.OutOfMemoryError."""
        self._program = program
        self._source = source
        self._held = held
        self._kernels = kernels
        self._drawn = source.changing(draw)
        self._factor = source.factor_of(draw)
        self._now = source.copy(draw)
        """The draw with all changes so far."""
        with cuda_errors():
            self._found = cupy.zeros((MOST_VERIFIED, 3), dtype=np.uint64)
        self._verified: list[str] = []
        """What was changed or renewed before each verified product."""

    def change(self, number: int, timed: TimedSequence, sequence: LaunchSequence) -> None:
        """Runs and verifies so many changed products, on the stream."""
        key = system_key()
        takes_values = self._source.has_values and self._program.target().values != 0
        turn = secrets.randbelow(2)
        changes = [Made(step, takes_values and (step + turn) % 2 == 0, key.low, key.high) for step in range(number)]
        at_once = max(1, MAX_OUTPUT_BYTES // self._now.dense.itemsize // max(self._now.reference.size, 1))
        for start in range(0, number, at_once):
            self._run(changes[start : start + at_once], timed, sequence)

    def _run(self, changes: list[Made], timed: TimedSequence, sequence: LaunchSequence) -> None:
        with self._held.hidden(), cuda_errors():
            outputs = [self._changed_product(made, timed, sequence) for made in changes]
        working = Target(int(self._now.values.data.ptr), int(self._now.dense.data.ptr))
        for made, output in zip(changes, outputs, strict=True):
            self._kernels.account(self._drawn, made, self._now, self._source.lost)
            self._kernels.change(self._drawn, made, working)
            self._verify("one value of A changed" if made.of_values else "one entry of x changed", output)

    def _changed_product(self, made: Made, timed: TimedSequence, sequence: LaunchSequence) -> "cupy.ndarray":
        stream = self._kernels.stream.ptr
        for _ in range(secrets.randbelow(MAX_UNCHANGED + 1)):
            sequence.enqueue(stream)
        is_late = sequence.starts_early and not made.of_values
        if is_late:
            # So that the program is queued before the change is made.
            self._kernels.delay(LATE_LEAD_US)
        self._kernels.change(self._drawn, made, self._program.target(), late_nanoseconds() if is_late else 0)
        if sequence.starts_early:
            if made.of_values:
                # Values may be read before the program waits: nothing that it may overlap with changes them.
                self._kernels.emptiness().enqueue(stream)
            sequence.enqueue(stream)
        else:
            timed.single.launch()
        return self._program.output()

    def repeat(self) -> None:
        """The traffic of `renew`, and nothing new, on the stream."""
        self._program.rewrite_vectors()

    def renew(self) -> None:
        """A dense operand that no launch has seen, NaN in output and scratch, on the stream."""
        self._program.renew_vectors(secrets.randbits(63), self._factor)

    def verify_renewed(self) -> None:
        """Verifies the last product, before which the program's dense operand was drawn anew, on the stream."""
        self._program.input_into(self._now.dense)
        output = self._program.output()
        self._source.refer(self._now)
        if self._source.lost:
            with cuda_errors():
                self._now.bound[...] += self._source.lost
        self._verify("a new x", output)

    def _verify(self, what: str, output: "cupy.ndarray") -> None:
        self._kernels.verify(output, self._now, self._found[len(self._verified)])
        self._verified.append(what)

    def problem(self) -> str:
        """What is wrong with the first result that is wrong; empty where all are right. Waits for the stream."""
        rows = self._kernels.download(self._found)[: len(self._verified)]
        size = int(self._now.reference.size)
        findings = (
            Found(what, int(wrong), size, int(~first))
            for what, (wrong, first, _) in zip(self._verified, rows, strict=True)
        )
        return next((finding.message for finding in findings if finding.message), "")
