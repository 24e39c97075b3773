"""Programs of tasks on the interpreter, checked as every candidate is."""

from collections.abc import Mapping

from services.evaluator.checking.correctness import Correct
from services.evaluator.compiling.compiler import Compiled, compile_program
from services.evaluator.device import RunFailure
from services.evaluator.interpreter.device import InterpreterDevice
from services.evaluator.interpreter.machine.launching import NUM_MULTIPROCESSORS
from services.evaluator.isolation.workbench import LocalWorkbench
from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.format import ParameterValue
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.texts import with_element_type
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import bind_numbers
from sparsesmith.program.program import check_sizes, parse_program
from sparsesmith_proto.kernel import Rejected, Workload
from sparsesmith_proto.message import ElementType


def make_problem(name: str, element_type: ElementType = "float32", axes: Mapping[str, int] | None = None) -> Problem:
    """Of a task; without axes that which it is tried with."""
    chosen = operation_named(name).trial if axes is None else axes
    return Problem(Workload(operation=name, element_type=element_type, axes=dict(chosen)))


def filled(problem: Problem, text: str, settings: Mapping[str, ParameterValue] | None = None) -> str:
    """A program with `T` for the element type as the evaluator reads it. Raises InvalidProgram."""
    circumstances = Circumstances(None, 1, NUM_MULTIPROCESSORS, problem.sizes)
    typed = with_element_type(text, problem.element_type)
    return bind_numbers(typed, settings or {}, circumstances, problem.workload.operation, problem.element_type).text


def checked(
    problem: Problem, text: str, settings: Mapping[str, ParameterValue] | None = None
) -> Correct | Rejected | RunFailure:
    """Of a program with `T` for the element type. Fails where it does not compile."""
    try:
        bound = filled(problem, text, settings)
        program = parse_program(bound, problem.workload.operation, problem.element_type)
        check_sizes(program, problem.sizes)
    except InvalidProgram as error:
        return Rejected(message=error.message)
    binary = compile_program(program.source, "sm_90", timeout_s=120)
    assert isinstance(binary, Compiled), binary.log
    return LocalWorkbench(InterpreterDevice(), problem).check("program", program, binary)
