"""The whole corpus on a GPU, in the sandbox: each program gets its outcome, and the next good one its usual time."""

from collections.abc import Iterator
from concurrent.futures import Future
from functools import cache

import pytest
import scipy.sparse

from services.evaluator.candidates import parse_candidate, parse_text
from services.evaluator.compiling.compiler import Compiled, CompileError, Compiler
from services.evaluator.cores import num_cores
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.isolation.sandbox import DeviceProcess, SandboxedWorkbench
from services.evaluator.race import Race
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import (
    Candidate,
    CompileFailed,
    MeasuredTiming,
    Outcome,
    Passed,
    Rejected,
    TimedOut,
    UserWritten,
    Workload,
)
from sparsesmith_proto.message import ElementType, Operation
from tests.gpu.programs import architecture, make_pattern, make_workload
from tests.kernels.corpus import CorpusProgram, corpus, good_program

pytestmark = pytest.mark.gpu

COMPILE_LIMIT_S = 6.0
TIME_TOLERANCE = 0.05
COLD_TOLERANCE = 0.15
RESOLUTION_US = 0.1

PATTERN = make_pattern(3000, 2501)
"""An odd number of columns: padding of blocks lies behind x."""

BANDED = pattern_from_scipy(
    scipy.sparse.diags([1.0] * 5, [-40, -1, 0, 1, 40], shape=(PATTERN.num_rows, PATTERN.num_cols), format="csr")
)
"""Of few diagonals, for programs whose format refuses any other, or many."""


def pattern_for(program: CorpusProgram) -> Pattern:
    return BANDED if "//@ format dia" in program.text or "index=u8" in program.text else PATTERN


def workload_of(program: CorpusProgram) -> Workload:
    return make_workload(
        pattern_for(program),
        operation=program.operation,
        element_type=program.element_type,
        num_dense_cols=program.num_dense_cols,
    )


class Grader:
    """Grades programs of different workloads on one GPU, all compiled ahead."""

    def __init__(self, process: DeviceProcess, compiler: Compiler) -> None:
        self._process = process
        self._binaries: dict[str, Future[Compiled | CompileError]] = {}
        self._workload: Workload | None = None
        self._workbench: SandboxedWorkbench | None = None
        self.usual_timing = cache(self.timing_now)
        for program in corpus():
            parsed = parse_text(program.text, workload_of(program))
            if not isinstance(parsed, Rejected):
                self._binaries[parsed.source] = compiler.submit(parsed.source, architecture())

    def outcome(self, program: CorpusProgram) -> Outcome:
        workload = workload_of(program)
        if self._workbench is None or self._workload != workload:
            self._workload, self._workbench = workload, self._process.open(Problem(workload, pattern_for(program)))
        candidate = Candidate(candidate_id="candidate", program=program.text, origin=UserWritten())
        parsed = parse_candidate(candidate, workload)
        return evaluate_kernel(parsed, self._compiled, self._workbench, Race(1e12))

    def timing_now(self, operation: Operation, element_type: ElementType) -> MeasuredTiming:
        """Of a good program; fails where it does not pass."""
        outcome = self.outcome(good_program(operation, element_type))
        assert isinstance(outcome, Passed), outcome
        assert isinstance(outcome.timing, MeasuredTiming)
        return outcome.timing

    def _compiled(self, program: KernelProgram) -> Compiled | CompileFailed | TimedOut:
        match self._binaries[program.source].result():
            case Compiled() as binary:
                return binary
            case CompileError(reason="timeout", log=log):
                return TimedOut(stage="compile", limit_s=COMPILE_LIMIT_S, message=log)
            case CompileError(log=log):
                return CompileFailed(log=log)


@pytest.fixture(scope="module")
def grader(sandbox: DeviceProcess) -> Iterator[Grader]:
    with Compiler(max(1, num_cores() - 1), timeout_s=COMPILE_LIMIT_S) as compiler:
        yield Grader(sandbox, compiler)


def is_unchanged(now: MeasuredTiming, before: MeasuredTiming) -> bool:
    return now.median_us == pytest.approx(before.median_us, rel=TIME_TOLERANCE, abs=RESOLUTION_US) and (
        now.cold_us == pytest.approx(before.cold_us, rel=COLD_TOLERANCE, abs=3 * RESOLUTION_US)
    )


@pytest.mark.parametrize("program", corpus(), ids=lambda program: program.name)
def test_a_program_gets_its_outcome_and_the_next_one_its_usual_time(program: CorpusProgram, grader: Grader) -> None:
    kind = (program.operation, program.element_type)
    before = grader.usual_timing(*kind)
    outcome = grader.outcome(program)
    assert outcome.outcome in program.expected_on_gpu, outcome
    now = grader.timing_now(*kind)
    if not is_unchanged(now, before):
        # What a program leaves behind lasts; a disturbance from elsewhere does not.
        now = grader.timing_now(*kind)
    assert is_unchanged(now, before), (before, now)
