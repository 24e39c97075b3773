"""Tasks whose times depend on what inputs hold are timed on adverse inputs as well: programs and baselines."""

import pytest
from rich.console import Console

from services.evaluator.adverse import slowest
from services.evaluator.candidates import fill_numbers, parse_candidates
from services.evaluator.compiling.compiler import Compiled, compile_program
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.interpreter.device import InterpreterDevice
from services.evaluator.interpreter.machine.launching import NUM_MULTIPROCESSORS
from services.evaluator.isolation.workbench import LocalWorkbench
from services.evaluator.race import Race
from sparsesmith.cli.rendering import show_evaluation
from sparsesmith.errors import InvalidOption
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.catalogue import checked_catalogue, our_tasks
from sparsesmith.operations.draws import GENERAL
from sparsesmith.operations.operation import adverse_draws
from sparsesmith.operations.task import Task
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.api import EvaluationAnswer
from sparsesmith_proto.kernel import AdverseTiming, Candidate, EstimatedTiming, Evaluation, Passed, UserWritten
from tests.evaluator.misbehaving_device import measured
from tests.operations.checked import filled, make_problem

DEPENDENT = tuple(task.name for task in our_tasks() if task.adverse)


@pytest.fixture(scope="module")
def device() -> InterpreterDevice:
    return InterpreterDevice()


def compiled(program: KernelProgram) -> Compiled:
    binary = compile_program(program.source, "sm_90", timeout_s=120)
    assert isinstance(binary, Compiled), binary.log
    return binary


def graded(device: InterpreterDevice, problem: Problem, program: str) -> tuple[Passed, Candidate]:
    candidate = Candidate(candidate_id="1", program=filled(problem, program), origin=UserWritten())
    (parsed,) = parse_candidates(fill_numbers([candidate], problem, NUM_MULTIPROCESSORS), problem)
    workbench = LocalWorkbench(device, problem)
    outcome = evaluate_kernel(parsed, compiled, workbench, Race(baseline_us=1e9))
    assert isinstance(outcome, Passed), outcome
    return outcome, candidate


def naive_of(name: str) -> str:
    operation = operation_named(name)
    return operation.programs[operation.naive]


def test_those_whose_times_depend_on_data_say_so() -> None:
    assert set(DEPENDENT) == {"sort", "bubble_sort", "top_k", "histogram"}


@pytest.mark.parametrize("name", DEPENDENT)
def test_a_program_that_passes_is_timed_on_adverse_inputs_too(device: InterpreterDevice, name: str) -> None:
    problem = make_problem(name)
    passed, _ = graded(device, problem, naive_of(name))
    assert passed.adverse is not None
    assert passed.adverse.draw in adverse_draws(problem.operation)
    assert isinstance(passed.adverse.timing, EstimatedTiming)


def test_falling_numbers_take_longer_to_sort_by_neighbours_and_the_answer_says_so(device: InterpreterDevice) -> None:
    problem = make_problem("bubble_sort")
    passed, candidate = graded(device, problem, naive_of("bubble_sort"))
    baselines = LocalWorkbench(device, problem).baselines()
    (naive,) = baselines.routines
    assert passed.adverse is not None and naive.adverse is not None
    assert passed.adverse.timing.median_us > passed.timing.median_us
    assert naive.adverse.timing.median_us > naive.timing.median_us
    console = Console(width=400)
    answer = EvaluationAnswer(
        workload=problem.workload,
        evaluation=Evaluation(candidate=candidate, outcome=passed),
        baselines=baselines,
        device=device.description(),
    )
    with console.capture() as shown:
        show_evaluation(console, answer)
    assert f"on falling inputs {passed.adverse.timing.median_us:.2f} us" in shown.get()
    assert f"naive; on falling inputs {naive.adverse.timing.median_us:.2f} us" in shown.get()


def test_other_tasks_have_one_time(device: InterpreterDevice) -> None:
    passed, _ = graded(device, make_problem("dot"), naive_of("dot"))
    assert passed.adverse is None
    assert "adverse" not in passed.model_dump(mode="json")


def test_of_several_kinds_the_one_that_takes_longest_is_told(device: InterpreterDevice) -> None:
    workload = device.open(make_problem("sort"))
    draws = [workload.draw(name) for name in ("falling", "equal", "rising")]
    us = {"falling": 5.0, "equal": 7.0, "rising": 6.0}
    found = slowest(draws, lambda draw: measured(us[draw.name]))
    assert isinstance(found, AdverseTiming) and (found.draw, found.timing.median_us) == ("equal", 7.0)
    assert slowest([], lambda draw: measured(1.0)) is None


@pytest.mark.parametrize("kind", ["uniform", "nowhere"])
def test_adverse_inputs_that_are_not_drawn_or_timed_anyway_are_refused(kind: str) -> None:
    usual = operation_named("dot")
    assert isinstance(usual, Task)
    task = Task(
        name="odd",
        formula=usual.formula,
        axes=usual.axes,
        operands=usual.operands,
        right=usual.right,
        flops=usual.flops,
        programs={},
        naive="",
        trial=usual.trial,
        adverse=(kind,),
    )
    with pytest.raises(InvalidOption, match=f"adverse is '{kind}'.*{', '.join(list(GENERAL)[1:])}"):
        checked_catalogue([task])
