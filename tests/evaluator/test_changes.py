"""Changed inputs that a program is run on again: one entry at a time, and each shows in what is right."""

import numpy as np
import pytest
import scipy.sparse

from services.evaluator.checking.changes import Change, changes, shows
from services.evaluator.checking.draws import draw, draw_inputs, expected_of, kinds_of
from services.evaluator.device import Draw
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import Operation
from tests.operations.checked import make_problem

LIMIT_S = 3600.0


def problem_of(matrix: object, operation: Operation = "spmv", num_dense_cols: int = 1) -> Problem:
    pattern = pattern_from_scipy(scipy.sparse.csr_array(matrix))
    return Problem(
        Workload(operation=operation, element_type="float32", pattern=pattern.digest, num_dense_cols=num_dense_cols),
        pattern,
    )


def drawn_of(problem: Problem, kind: str) -> Draw:
    return draw(kind, problem, np.random.default_rng(1))


def some(problem: Problem, kind: str = "uniform", number: int = 6, limit_s: float = LIMIT_S) -> list[Change]:
    return list(changes(problem, drawn_of(problem, kind), number, np.random.default_rng(2), limit_s))


@pytest.fixture(params=[("spmv", 1), ("spmm", 5)], ids=["spmv", "spmm"])
def problem(request: pytest.FixtureRequest) -> Problem:
    operation, num_dense_cols = request.param
    random = np.random.default_rng(0)
    return problem_of(scipy.sparse.random(30, 20, 0.2, random_state=random), operation, num_dense_cols)


def test_each_change_is_of_one_entry_on_top_of_the_ones_before(problem: Problem) -> None:
    before = drawn_of(problem, "uniform")
    found = some(problem)
    assert len(found) == 6
    for change in found:
        for name, array in change.draw.inputs.items():
            differing = np.flatnonzero(array.reshape(-1) != before.inputs[name].reshape(-1))
            assert list(differing) == ([change.index] if name == change.operand else [])
        assert change.draw.inputs[change.operand].reshape(-1)[change.index] == change.value[0]
        before = change.draw


def test_each_change_shows_in_what_is_right_and_that_is_computed_anew(problem: Problem) -> None:
    before = drawn_of(problem, "uniform")
    for change in some(problem):
        assert shows(before, change.draw)
        anew = expected_of(before.name, problem, change.draw.inputs)["expected"]
        for name, expected in change.draw.expected.items():
            np.testing.assert_array_equal(expected.reference, anew[name].reference)
        before = change.draw


def test_operands_are_changed_in_turns(problem: Problem) -> None:
    operands = [change.operand for change in some(problem)]
    assert len(set(operands[:2])) == 2
    assert operands == operands[:2] * 3


def test_an_entry_that_a_long_sum_would_hide_is_enlarged_until_it_shows() -> None:
    problem = problem_of(np.ones((1, 200_000)))
    before = drawn_of(problem, "uniform")
    for change in some(problem, number=2):
        assert shows(before, change.draw)
        assert abs(change.value[0]) > 10 * np.abs(before.inputs[change.operand]).max()
        before = change.draw


@pytest.mark.parametrize(
    ("task", "axes"),
    [
        ("dot", {"n": 2**18}),
        ("sum", {"n": 2**18}),
        ("mse", {"n": 2**18}),
        ("monte_carlo", {"n": 2**18}),
        ("top_k", {"n": 2**12, "k": 64}),
        ("cross_entropy", {"n": 2**16, "classes": 10}),
        ("least_squares", {"n": 2**16, "features": 10}),
        ("max_pool3d", {"batch": 1, "channels": 2, "depth": 16, "height": 16, "width": 16}),
    ],
)
def test_tasks_that_take_any_number_are_changed_where_most_entries_do_not_show(task: str, axes: dict[str, int]) -> None:
    problem = Problem(Workload(operation=task, element_type="float32", axes=axes))
    assert len(some(problem, kinds_of(problem)[0], number=4)) == 4


def test_an_entry_that_no_result_depends_on_is_never_the_one_that_is_changed() -> None:
    row = np.zeros((1, 50))
    row[0, 7] = 1
    found = some(problem_of(row))
    assert found
    assert {change.index for change in found if change.operand == "x"} <= {7}


def test_no_change_is_begun_after_the_time_is_over(problem: Problem) -> None:
    assert len(some(problem, limit_s=-1.0)) == 1


def test_results_within_each_others_bounds_do_not_show(problem: Problem) -> None:
    drawn = drawn_of(problem, "uniform")
    assert not shows(drawn, drawn)


@pytest.mark.parametrize("name", ["dot", "reverse", "least_squares", "top_k"])
def test_inputs_alone_are_those_of_the_whole_draw(name: str) -> None:
    task = make_problem(name)
    for kind in kinds_of(task):
        whole, alone = draw(kind, task, np.random.default_rng(5)), draw_inputs(kind, task, np.random.default_rng(5))
        assert whole.inputs.keys() == alone.keys()
        for operand, array in alone.items():
            assert array.dtype == whole.inputs[operand].dtype
            np.testing.assert_array_equal(array, whole.inputs[operand])
