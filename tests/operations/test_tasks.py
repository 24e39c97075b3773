"""Every task of ours, by one suite: its folder in `sparsesmith/operations`, and a module of its name in `tasks`, which
has the same result by somebody else's code and ways to spoil the naive program."""

from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from services.evaluator.checking.correctness import Correct
from services.evaluator.checking.draws import expected_of, kinds_of
from services.evaluator.device import wrong_entries
from services.evaluator.interpreter.device import InterpreterDevice
from services.evaluator.isolation.workbench import LocalWorkbench
from services.evaluator.vetting import vet
from sparsesmith.operations import Problem
from sparsesmith.operations.catalogue import check_workload, our_tasks
from sparsesmith.operations.draws import GENERAL, inputs_of
from sparsesmith.operations.operation import Arrays, Judging
from sparsesmith.program.numbers import knobs_of, num_settings
from sparsesmith.tuning.grid import grid_of_problem
from sparsesmith_proto.kernel import Crashed, Mismatch, Rejected, Workload
from tests.operations.checked import checked, make_problem

TASKS = {task.name: task for task in our_tasks()}


def beside(name: str) -> Any:
    """The module of a task in `tasks`."""
    return import_module(f"tests.operations.tasks.{name}")


def drawn(problem: Problem, kind: str, seed: int) -> Arrays:
    """In the operands' own types."""
    draws = problem.operation.draws or GENERAL
    with np.errstate(over="ignore"):
        arrays = draws[kind](problem, np.random.default_rng(seed))
        return {
            each.name: np.ascontiguousarray(arrays[each.name], each.array_type(problem.element_type))
            for each in inputs_of(problem)
        }


@pytest.mark.parametrize("name", TASKS)
def test_draws_are_the_same_for_a_seed_and_others_for_another(name: str) -> None:
    problem = make_problem(name)
    for kind in kinds_of(problem):
        first, again, other = (drawn(problem, kind, seed) for seed in (1, 1, 2))
        for each in inputs_of(problem):
            np.testing.assert_array_equal(first[each.name], again[each.name])
        assert any(not np.array_equal(first[each.name], other[each.name]) for each in inputs_of(problem)), kind


@pytest.mark.parametrize("name", TASKS)
def test_what_is_right_is_what_another_implementation_finds(name: str) -> None:
    problem = make_problem(name)
    for kind in kinds_of(problem):
        inputs = drawn(problem, kind, 3)
        right = expected_of(kind, problem, inputs)
        found = beside(name).outputs(inputs, problem.sizes)
        assert found.keys() == right["expected"].keys()
        for output, each in right["expected"].items():
            assert np.shape(found[output]) == each.reference.shape
            # Far closer than programs must come: both are found in float64.
            assert not wrong_entries(found[output], each.reference, each.bound / 100).any(), (kind, output)
        if right["residuals"] is not None:
            for residual in right["residuals"](found).values():
                assert not wrong_entries(residual.found, np.zeros_like(residual.found), residual.bound / 100).any()


@pytest.mark.parametrize("name", TASKS)
def test_the_result_for_other_inputs_is_refused(name: str) -> None:
    problem = make_problem(name)
    first, other = (drawn(problem, kinds_of(problem)[0], seed) for seed in (4, 5))
    given, right = expected_of("", problem, first)["expected"], expected_of("", problem, other)
    if isinstance(problem.operation, Judging):
        assert right["residuals"] is not None
        outputs = {output: each.reference for output, each in given.items()}
        assert any((abs(each.found) > each.bound).any() for each in right["residuals"](outputs).values())
    else:
        for output, each in right["expected"].items():
            assert wrong_entries(given[output].reference, each.reference, each.bound).any()


@pytest.mark.parametrize("name", TASKS)
def test_its_trial_is_ragged_and_what_is_asked_of_registered_tasks_holds(name: str) -> None:
    task = TASKS[name]
    assert any(size % 32 for size in task.trial.values())
    vet(task, f"operations/{name}")


@pytest.mark.parametrize("name", TASKS)
def test_five_sizes_are_published_and_legal(name: str) -> None:
    task = TASKS[name]
    assert len(task.published) == 5
    for axes in task.published:
        check_workload(Workload(operation=name, element_type="float32", axes=dict(axes)))
    floors = [make_problem(name, axes=axes).floor.bytes_moved for axes in task.published]
    assert floors == sorted(floors)
    assert task.text
    assert task.formula


def programs() -> Iterator[Any]:
    for task in TASKS.values():
        for program, text in task.programs.items():
            if program != task.naive:
                yield pytest.param(task.name, text, id=f"{task.name}-{program}")


@pytest.mark.parametrize(("name", "text"), list(programs()))
def test_its_other_programs_pass_with_the_first_and_the_last_of_their_knobs(name: str, text: str) -> None:
    problem = make_problem(name)
    knobs = knobs_of(text)
    verdict = checked(problem, text)
    assert isinstance(verdict, Correct), verdict
    if knobs:
        verdict = checked(problem, text, {knob.name: knob.values[-1] for knob in knobs})
        assert isinstance(verdict, Correct), verdict


def test_a_program_with_knobs_is_a_family_of_its_own_that_the_tuner_searches() -> None:
    grid = grid_of_problem(make_problem("relu"))
    counts = Counter(grid.families)
    knobs = knobs_of(TASKS["relu"].programs["vectors"])
    assert counts == {"relu_programs": 1, "relu_vectors": num_settings(knobs)}
    assert len({grid.instance(index).program for index in range(counts.total())}) == counts.total()


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_a_baseline_that_gives_equal_bits_where_that_is_asked_for(name: str) -> None:
    workload = make_problem(name).workload.model_copy(update={"deterministic": True})
    (routine,) = LocalWorkbench(InterpreterDevice(), Problem(workload)).baselines().routines
    assert routine.routine == (TASKS[name].ordered or TASKS[name].naive)


def test_a_program_that_changes_an_operand_in_place_may_not_start_early() -> None:
    text = TASKS["reverse"].programs["naive"].replace("block=256", "block=256 dependency=programmatic", 1)
    waiting = text.replace("  T first", '  asm volatile("griddepcontrol.wait;" ::: "memory");\n  T first')
    verdict = checked(make_problem("reverse"), waiting)
    assert isinstance(verdict, Rejected)
    assert "x is changed in place: such a program may not start early" in verdict.message


@pytest.mark.parametrize("name", TASKS)
def test_its_programs_pass_in_float64(name: str) -> None:
    problem, task = make_problem(name, "float64"), TASKS[name]
    for text in task.programs.values():
        verdict = checked(problem, text)
        assert isinstance(verdict, Correct), verdict


def spoiled() -> Iterator[Any]:
    for name in TASKS:
        for what, change in beside(name).SPOILED.items():
            yield pytest.param(name, change, id=f"{name}-{what}")


CHECKS = 3
"""Draws are new each time; errors of ten bits cancel in a sum so well that one check in 300 finds none too large."""


@pytest.mark.parametrize(("name", "change"), list(spoiled()))
def test_a_spoiled_naive_program_is_refused(name: str, change: tuple[str, str]) -> None:
    task = TASKS[name]
    naive = task.programs[task.naive]
    assert change[0] in naive
    problem, text = make_problem(name), naive.replace(*change)
    verdicts = (checked(problem, text) for _ in range(CHECKS))
    verdict = next((verdict for verdict in verdicts if not isinstance(verdict, Correct)), None)
    is_undefined = isinstance(verdict, Crashed) and "that the program has not written before" in verdict.message
    assert isinstance(verdict, Mismatch) or is_undefined, verdict
