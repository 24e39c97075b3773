"""The plainest program of an operation that no library of the vendor's is asked for: its baseline, under the harness of
candidates."""

from collections.abc import Callable, Sequence

from services.evaluator.adverse import slowest
from services.evaluator.candidates import baseline_text, program_of
from services.evaluator.checking.correctness import Correct, check
from services.evaluator.compiling.compiler import Compiled, compile_own
from services.evaluator.cuda.arena import random_placement
from services.evaluator.cuda.kernel import CudaKernel
from services.evaluator.cuda.residents import HeldDraws
from services.evaluator.cuda.timed_sequence import TimedSequence
from services.evaluator.device import BuiltMatrix, Draw, RunFailure
from services.evaluator.isolation.built_formats import BuiltMatrices
from services.evaluator.measuring.interval import FULL, TimingBudget
from sparsesmith.errors import Unavailable
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import Baselines, BaselineTiming, Crashed, Rejected
from sparsesmith_proto.message import Architecture

Load = Callable[[KernelProgram, BuiltMatrix, Compiled], CudaKernel | Rejected | Crashed]


class OwnRoutines:
    """Of one problem; the same methods as `LibraryRoutines`."""

    def __init__(self, problem: Problem, load: Load, architecture: Architecture, num_sms: int, held: HeldDraws) -> None:
        self._problem = problem
        self.name, self._text = baseline_text(problem.workload, num_sms)
        self._load = load
        self._architecture = architecture
        self._held = held
        self._kernel: CudaKernel | None = None

    def baselines(self, first: Draw, second: Draw, adverse: Sequence[Draw] = ()) -> Baselines:
        """It is checked on these draws in device memory, and timed on the first and on the adverse ones. Raises
        Unavailable where it does not work."""
        kernel, conversion_ms = self._loaded()
        verdict = check(kernel, [first, second, *adverse], 0)
        if not isinstance(verdict, Correct):
            raise Unavailable(f"the program {self.name} fails: {verdict.message}")
        hardest = slowest(adverse, kernel.time_on)
        if isinstance(hardest, RunFailure):
            raise Unavailable(f"the program {self.name} cannot be timed: {hardest.message}")
        sequence = self.sequence(self.name, first, FULL)
        with self._held.hidden():
            timing = sequence.measure(FULL)
        routine = BaselineTiming(routine=self.name, timing=timing, preparation_ms=conversion_ms, adverse=hardest)
        return Baselines(default=self.name, routines=(routine,))

    def sequence(self, name: str, draw: Draw, budget: TimingBudget) -> TimedSequence:
        """Ready to be timed until the next one is asked for, at an address of its own. Raises LaunchRefused."""
        kernel, _ = self._loaded()
        return kernel.timed_sequence(draw, budget, random_placement())

    def move(self) -> None:
        """Every sequence lies at other addresses than the one before."""

    def _loaded(self) -> tuple[CudaKernel, float]:
        """Compiled and loaded once, and how long its format takes to build. Raises Unavailable."""
        problem = self._problem
        program = program_of(self._text, problem.workload)
        built = BuiltMatrices(problem).get(program)
        if self._kernel is None:
            binary = compile_own(program.source, self._architecture)
            if not isinstance(binary, Compiled):
                raise Unavailable(f"the program {self.name} does not compile: {binary.log}")
            kernel = self._load(program, built, binary)
            if not isinstance(kernel, CudaKernel):
                raise Unavailable(f"the program {self.name} is refused: {kernel.message}")
            self._kernel = kernel
        return self._kernel, built.conversion_ms
