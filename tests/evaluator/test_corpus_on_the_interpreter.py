"""The whole corpus through the real compiler and the real interpreter, in the sandbox.

Each program gets the outcome that its first lines name; right after one that was started, on the same device, a good
program passes with the very estimate that it had before.
"""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import cache

import pytest

from services.evaluator.compiling.compiler import Compiled, CompileError, Compiler
from services.evaluator.devices import InterpreterFactory
from services.evaluator.interpreter.device import InterpreterDevice
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from services.evaluator.isolation.workbench import LocalWorkbench
from sparsesmith.operations import Problem
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import CompileFailed, Outcome, Passed, Rejected, Timing
from sparsesmith_proto.message import ElementType, Operation
from tests.evaluator.grading_tools import COMPILE_LIMIT_S, Evaluator, make_pattern, make_workload, message_of
from tests.evaluator.misbehaving_device import program_text
from tests.kernels.corpus import FOLDER, CorpusProgram, corpus, good_program, num_dense_cols_of, read_program

PATIENCE_S = 120.0
"""For programs that do compile, on a machine that does more than this."""


class CompilesOnce(Compiler):
    """Knows what it has compiled: a good program after a bad one says something of the device, not of compilers."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(timeout_s=timeout_s)
        self._known: dict[str, Future[Compiled | CompileError]] = {}

    def submit(self, source: str, architecture: str) -> Future[Compiled | CompileError]:
        known = self._known.get(source)
        if known is None or (known.done() and isinstance(known.result(), CompileError)):
            known = self._known[source] = super().submit(source, architecture)
        return known


class Grader:
    """Evaluates programs of different workloads on one device."""

    def __init__(self, process: DeviceProcess, compiler: Compiler, hasty: Compiler) -> None:
        self._process = process
        self._compiler = compiler
        self._hasty = hasty
        self._evaluator: Evaluator | None = None
        self.good_timing = cache(self._good_timing)
        self.first_outcome = cache(self.outcome)

    def outcome(
        self,
        text: str,
        operation: Operation = "spmv",
        element_type: ElementType = "float32",
        *,
        may_not_compile_in_time: bool = False,
    ) -> Outcome:
        # An odd number of columns: padding of blocks lies behind x.
        pattern = make_pattern(300, 301)
        workload = make_workload(pattern, operation, element_type, num_dense_cols_of(operation))
        if self._evaluator is None or self._evaluator.workload != workload:
            self._evaluator = Evaluator(workload, self._process.open(Problem(workload, pattern)), self._compiler)
        compiler = self._hasty if may_not_compile_in_time else self._compiler
        return replace(self._evaluator, compiler=compiler).outcome(text)

    def timing_after(self, operation: Operation, element_type: ElementType) -> Timing:
        """Of a good program; fails where it does not pass."""
        outcome = self.outcome(good_program(operation, element_type).text, operation, element_type)
        assert isinstance(outcome, Passed), outcome
        return outcome.timing

    def _good_timing(self, operation: Operation, element_type: ElementType) -> Timing:
        return self.timing_after(operation, element_type)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    process = DeviceProcess(InterpreterFactory("sm_90"), StageLimits())
    with CompilesOnce(PATIENCE_S) as compiler, Compiler(timeout_s=COMPILE_LIMIT_S) as hasty:
        yield Grader(process, compiler, hasty)
    process.close()


def of_one_workload_after_the_other() -> list[CorpusProgram]:
    """Each workload is opened once."""
    return sorted(corpus(), key=lambda program: (program.operation, program.element_type))


@pytest.mark.parametrize("program", of_one_workload_after_the_other(), ids=lambda program: program.name)
def test_a_program_gets_its_outcome_and_the_next_one_a_clean_device(program: CorpusProgram, grader: Grader) -> None:
    kind = (program.operation, program.element_type)
    before = grader.good_timing(*kind)
    is_bomb = {"compile_failed", "timed_out"} <= set(program.expected)
    outcome = grader.first_outcome(program.text, *kind, may_not_compile_in_time=is_bomb)
    assert outcome.outcome in program.expected, outcome
    assert program.words in message_of(outcome)
    if not isinstance(outcome, Rejected | CompileFailed):  # These never came near the device.
        assert grader.timing_after(*kind) == before


GOOD = read_program(FOLDER / "good" / "csr_scalar.cu").text
NO_PROGRAMS = ["", "\x00", GOOD.replace("sum", "s\x00m"), GOOD.replace("sum", "s\ud800m"), "no kernel here"]


@pytest.mark.parametrize("text", NO_PROGRAMS)
def test_text_that_is_no_program_is_rejected(grader: Grader, text: str) -> None:
    assert grader.outcome(text).outcome == "rejected"
    assert isinstance(grader.outcome(GOOD), Passed)


@pytest.mark.parametrize("name", ["bounds_check_forgotten", "endless_loop", "deadlock", "race"])
def test_a_finding_names_line_block_and_thread(grader: Grader, name: str) -> None:
    program = read_program(FOLDER / "broken" / f"{name}.cu")
    kind = (program.operation, program.element_type)
    message = message_of(grader.first_outcome(program.text, *kind, may_not_compile_in_time=False))
    assert all(word in message for word in ("line ", "block (", "thread (")), message


def test_raw_model_text_around_a_program_does_no_harm(grader: Grader) -> None:
    outcome = grader.outcome(f"Here is the kernel:\n```cuda\n{GOOD}```\nIt is fast.")
    assert isinstance(outcome, Passed)


def test_state_that_the_text_does_not_show_is_rejected_before_it_runs() -> None:
    program = parse_program(program_text("right"), "spmv", "float32")
    hidden = program.source.replace("extern", "__location__(device) int calls;\nextern", 1).replace(
        "{}", "{ calls++; }"
    )
    with Compiler(1, timeout_s=120) as compiler:
        binary = compiler.compile(hidden, "sm_90")
    assert isinstance(binary, Compiled)
    pattern = make_pattern()
    verdict = LocalWorkbench(InterpreterDevice(), Problem(make_workload(pattern), pattern)).check(
        "kernel", program, binary
    )
    assert isinstance(verdict, Rejected)
    assert verdict.message.startswith("variables in global memory outlive a launch")
    assert verdict.message.endswith(": calls")
