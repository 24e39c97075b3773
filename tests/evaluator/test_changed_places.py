"""Where on a GPU an entry of an input is changed, whatever its operand is called."""

import numpy as np
import pytest

from services.evaluator.cuda.changes import Place, at_the_start, places_of
from services.evaluator.device import VALUES
from services.evaluator.interpreter.machine.launching import NUM_MULTIPROCESSORS
from sparsesmith.formats.format import EMPTY_LAYOUT
from sparsesmith.operations import Problem
from sparsesmith.operations.catalogue import our_tasks
from sparsesmith.program.binding import BoundProgram, bind
from sparsesmith.program.program import parse_program
from tests.evaluator.grading_tools import make_pattern, make_workload
from tests.kernels.corpus import CorpusProgram, corpus
from tests.operations.checked import filled, make_problem

TASKS = {task.name: task for task in our_tasks()}
PRODUCTS = [
    each
    for each in corpus("good")
    if each.operation == "spmv" and each.path.stem in ("csr_scalar", "sell_sorted", "ell")
]


def bound_task(name: str) -> BoundProgram:
    problem = make_problem(name)
    program = parse_program(filled(problem, TASKS[name].programs["naive"]), name, "float32")
    return bind(program, EMPTY_LAYOUT, problem, NUM_MULTIPROCESSORS)


@pytest.mark.parametrize("name", TASKS)
def test_each_input_of_a_task_is_changed_in_its_own_buffer(name: str) -> None:
    bound = bound_task(name)
    inputs = bound.with_role("input", "inout")
    assert inputs
    for given in inputs:
        where = at_the_start(given.name) if given.role == "inout" else given.name
        assert places_of(bound, lambda: None, given.name, 3) == [Place(where, 3 * np.dtype(given.dtype).itemsize)]


@pytest.mark.parametrize("program", PRODUCTS, ids=lambda program: program.name)
def test_a_value_of_a_matrix_is_changed_wherever_the_format_stores_it(program: CorpusProgram) -> None:
    pattern = make_pattern()
    problem = Problem(make_workload(pattern, program.operation, program.element_type), pattern)
    parsed = parse_program(program.text, program.operation, program.element_type)
    layout = parsed.format.build(pattern, parsed.parameters)
    bound = bind(parsed, layout, problem, NUM_MULTIPROCESSORS)
    width = np.dtype(program.element_type).itemsize
    values = np.arange(1, pattern.nnz + 1).astype(program.element_type)
    packed, index = layout.pack(values).copy(), pattern.nnz // 2
    values[index] = -1
    for place in places_of(bound, lambda: layout.value_sources, VALUES, index):
        assert (place.buffer, place.offset % width) == (VALUES, 0)
        packed[place.offset // width] = -1
    np.testing.assert_array_equal(packed, layout.pack(values))
    assert places_of(bound, lambda: layout.value_sources, "x", 5) == [Place("x", 5 * width)]
