"""Operations that other packages register, tried once before the first job: what is wrong is told by folder and part.

Inputs are drawn, the expectation is asked for them, and the naive program is compiled and checked on the interpreter.
Where nothing is registered nothing is done, nor imported.
"""

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from sparsesmith.errors import InvalidInput, InvalidOption
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Operation, Problem
from sparsesmith.operations.catalogue import folder_of, operation_named, registrations
from sparsesmith.operations.draws import inputs_of
from sparsesmith.operations.operation import Arrays, Expected
from sparsesmith.operations.texts import element_types_of, with_element_type
from sparsesmith_proto.kernel import Workload

if TYPE_CHECKING:
    from services.evaluator.device import Draw

TRIAL_ROWS, TRIAL_COLS, TRIAL_DENSITY = 45, 37, 0.1
"""Of the matrix that operations on one are tried with."""


def vet_registered() -> None:
    """Raises InvalidOption naming the folder and the part of the first registered operation that cannot be right."""
    for entry in registrations():
        vet(operation_named(_name_of(entry)), folder_of(entry))


def _name_of(entry: EntryPoint) -> str:
    operation: Operation = entry.load()
    return operation.name


def vet(operation: Operation, folder: str) -> None:
    """Raises InvalidOption as `vet_registered`."""
    try:
        problem = trial_problem(operation)
    except InvalidOption as error:
        raise _refused(operation, folder, "trial", error.message) from error
    for part, reason in _faults(problem):
        raise _refused(operation, folder, part, reason)


def trial_problem(operation: Operation) -> Problem:
    """A small one. Raises InvalidOption where its own axes do not fit."""
    matrix = None
    if operation.takes_matrix:
        random = scipy.sparse.random(TRIAL_ROWS, TRIAL_COLS, TRIAL_DENSITY, format="csr", random_state=1)
        matrix = pattern_from_scipy(random)
    axes = dict(operation.trial)
    workload = Workload(
        pattern=None if matrix is None else matrix.digest,
        operation=operation.name,
        element_type=element_types_of(operation)[0],
        num_dense_cols=axes.pop("num_dense_cols", 1),
        axes=axes,
    )
    return Problem(workload, matrix)


def _faults(problem: Problem) -> Iterator[tuple[str, str]]:
    """Parts and what is wrong with them."""
    from services.evaluator.checking.draws import draw, kinds_of, system_generator

    for name in kinds_of(problem):
        drawn = problem.operation.draws.get(name)
        if drawn is not None:
            yield from _faults_of_inputs(name, drawn(problem, system_generator()), problem)
        yield from _faults_of_expected(draw(name, problem, system_generator()), problem)
    yield from _faults_of_naive(problem)


def _faults_of_inputs(name: str, inputs: Arrays, problem: Problem) -> Iterator[tuple[str, str]]:
    for operand in inputs_of(problem):
        shape = operand.shape(problem.sizes)
        found = np.shape(inputs[operand.name]) if operand.name in inputs else None
        if found != shape:
            yield "draws", f"{name}: {operand.name} has the shape {found}, needed: {shape}"


def _faults_of_expected(drawn: "Draw", problem: Problem) -> Iterator[tuple[str, str]]:
    written = [each for each in problem.operation.operands if each.role in ("output", "inout")]
    names = sorted(operand.name for operand in written)
    if sorted(drawn.expected) != names:
        yield "expect", f"it tells of {', '.join(sorted(drawn.expected))}, needed: {', '.join(names)}"
        return
    is_finite = all(bool(np.isfinite(array).all()) for array in drawn.inputs.values())
    for operand in written:
        yield from _faults_of(drawn.expected[operand.name], operand.name, operand.shape(problem.sizes), is_finite)


def _faults_of(
    expected: Expected, name: str, shape: tuple[int, ...], inputs_are_finite: bool
) -> Iterator[tuple[str, str]]:
    arrays = {
        "reference": expected.reference,
        "magnitude": expected.magnitude,
        "bound": expected.bound,
    }
    for what, array in arrays.items():
        if np.shape(array) != shape:
            yield "expect", f"the {what} of {name} has the shape {np.shape(array)}, needed: {shape}"
            return
        if inputs_are_finite and not bool(np.isfinite(array).all()):
            yield "expect", f"the {what} of {name} is NaN or infinite where all inputs are finite"


def _faults_of_naive(problem: Problem) -> Iterator[tuple[str, str]]:
    """On the interpreter, which is where no GPU is needed."""
    from services.evaluator.checking.correctness import Correct
    from services.evaluator.compiling.compiler import Compiled, compile_program
    from services.evaluator.interpreter.device import InterpreterDevice
    from services.evaluator.isolation.workbench import LocalWorkbench
    from sparsesmith.program.program import parse_program

    operation, device = problem.operation, InterpreterDevice()
    text = with_element_type(operation.programs[operation.naive], problem.element_type)
    try:
        program = parse_program(text, operation.name, problem.element_type)
    except InvalidInput as error:
        yield f"programs/{operation.naive}", error.message
        return
    binary = compile_program(program.source, device.architecture)
    if not isinstance(binary, Compiled):
        yield f"programs/{operation.naive}", f"it does not compile: {binary.log}"
        return
    verdict = LocalWorkbench(device, problem).check("naive", program, binary)
    if not isinstance(verdict, Correct):
        yield f"programs/{operation.naive}", f"it fails its own check: {verdict.message}"


def _refused(operation: Operation, folder: str, part: str, reason: str) -> InvalidOption:
    return InvalidOption(
        f"operation {operation.name} in {folder}: {part}: {reason}", field=part, value=operation.name, limit=folder
    )
