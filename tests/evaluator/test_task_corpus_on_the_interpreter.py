"""The corpus of broken and cheating programs for tasks through the real compiler and interpreter, in the sandbox.

Each program gets the outcome that its first lines name, and after those of a task its naive program passes on the same
device. FSR's defects are among them: what its checks took for right.
"""

from collections.abc import Iterator

import pytest

from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import InterpreterFactory
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Outcome, Passed
from tests.evaluator.grading_tools import Evaluator, message_of
from tests.kernels.corpus import naive_program, task_corpus, task_workload

TASKS = sorted({program.operation for program in task_corpus()})


class Grader:
    """Evaluates programs of one task after the other on one device."""

    def __init__(self, process: DeviceProcess, compiler: Compiler) -> None:
        self._process = process
        self._compiler = compiler
        self._evaluator: Evaluator | None = None

    def outcome(self, text: str, operation: str) -> Outcome:
        workload = task_workload(operation)
        if self._evaluator is None or self._evaluator.workload != workload:
            self._evaluator = Evaluator(workload, self._process.open(Problem(workload)), self._compiler)
        return self._evaluator.outcome(text)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    process = DeviceProcess(InterpreterFactory("sm_90"), StageLimits())
    with Compiler(1, timeout_s=120) as compiler:
        yield Grader(process, compiler)
    process.close()


@pytest.mark.parametrize("task", TASKS)
def test_no_broken_or_cheating_program_of_a_task_passes_and_the_naive_one_does(task: str, grader: Grader) -> None:
    for program in task_corpus():
        if program.operation == task:
            outcome = grader.outcome(program.text, task)
            assert outcome.outcome in program.expected, (program.name, outcome)
            assert program.words in message_of(outcome), (program.name, outcome)
    assert isinstance(grader.outcome(naive_program(task), task), Passed)
