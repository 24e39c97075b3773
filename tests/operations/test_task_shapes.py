"""Whatever axes a task takes, its arrays have the shapes that they say, and what is right is within its own bound."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from services.evaluator.checking.draws import draw, kinds_of
from services.evaluator.device import wrong_entries
from sparsesmith.errors import InvalidOption
from sparsesmith.operations.catalogue import check_axes, our_tasks
from tests.operations.checked import make_problem

TASKS = {task.name: task for task in our_tasks()}


@pytest.mark.parametrize("name", TASKS)
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_arrays_have_the_shapes_of_the_axes_and_what_is_right_is_within_its_bound(
    name: str, data: st.DataObject
) -> None:
    axes = {axis: data.draw(st.integers(1, 24), label=axis) for axis in TASKS[name].axes}
    try:
        check_axes(TASKS[name], 1, axes)
    except InvalidOption:
        assume(False)
    problem = make_problem(name, axes=axes)
    kind = data.draw(st.sampled_from(kinds_of(problem)), label="kind")
    drawn = draw(kind, problem, np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed")))
    operands = {each.name: each for each in problem.operation.operands}
    for operand, array in drawn.inputs.items():
        assert array.shape == operands[operand].shape(problem.sizes)
    for operand, each in drawn.expected.items():
        shape = operands[operand].shape(problem.sizes)
        assert each.reference.shape == each.bound.shape == each.magnitude.shape == shape
        assert (each.bound[np.isfinite(each.reference)] >= 0).all()
    if drawn.residuals is None:
        for operand, each in drawn.expected.items():
            assert not wrong_entries(drawn.right[operand].astype(np.float64), each.reference, each.bound).any()
