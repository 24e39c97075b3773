"""The corpus of broken and cheating programs for tasks on a GPU, in the sandbox; then each task's naive program."""

import pytest

from services.evaluator.compiling.compiler import Compiler
from services.evaluator.isolation.sandbox import DeviceProcess
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Passed
from tests.evaluator.grading_tools import Evaluator
from tests.kernels.corpus import naive_program, task_corpus, task_workload

pytestmark = pytest.mark.gpu

TASKS = sorted({program.operation for program in task_corpus()})


@pytest.mark.parametrize("task", TASKS)
def test_no_broken_or_cheating_program_of_a_task_gets_through_and_the_naive_one_passes(
    task: str, sandbox: DeviceProcess
) -> None:
    workload = task_workload(task)
    with Compiler(1) as compiler:
        evaluator = Evaluator(workload, sandbox.open(Problem(workload)), compiler)
        for program in task_corpus():
            if program.operation == task:
                outcome = evaluator.outcome(program.text)
                assert outcome.outcome in program.expected_on_gpu, (program.name, outcome)
        assert isinstance(evaluator.outcome(naive_program(task)), Passed)
