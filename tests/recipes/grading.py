"""Programs graded as the evaluator does it, on the interpreter."""

from collections.abc import Mapping

from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import InterpreterFactory
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Outcome
from sparsesmith_proto.message import ElementType
from tests.evaluator.grading_tools import COMPILE_LIMIT_S, Evaluator, make_pattern, make_workload


def outcomes(texts: Mapping[ElementType, str]) -> list[Outcome]:
    """Of a program for each element type, on a small matrix."""
    process = DeviceProcess(InterpreterFactory("sm_90"), StageLimits(check_s=240, time_s=240))
    pattern, found = make_pattern(), []
    with Compiler(1, timeout_s=COMPILE_LIMIT_S) as compiler:
        for element_type, text in texts.items():
            workload = make_workload(pattern, "spmv", element_type)
            found.append(Evaluator(workload, process.open(Problem(workload, pattern)), compiler).outcome(text))
    process.close()
    return found
