"""A small workload and what it takes to evaluate candidates on it."""

from dataclasses import dataclass

import scipy.sparse

from services.evaluator.candidates import parse_candidate
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.isolation.workbench import Workbench
from services.evaluator.race import Race
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Candidate, CompileFailed, Outcome, Passed, UserWritten, Workload
from sparsesmith_proto.message import ElementType, Operation

COMPILE_LIMIT_S = 6.0


def make_pattern(num_rows: int = 300, num_cols: int = 300, density: float = 0.03) -> Pattern:
    """Has odd row lengths and an empty row."""
    matrix = scipy.sparse.random(num_rows, num_cols, density, random_state=5, format="lil")
    matrix[3] = 0
    return pattern_from_scipy(matrix)


def make_workload(
    pattern: Pattern,
    operation: Operation = "spmv",
    element_type: ElementType = "float32",
    num_dense_cols: int = 1,
    *,
    deterministic: bool = False,
) -> Workload:
    return Workload(
        pattern=pattern.digest,
        operation=operation,
        element_type=element_type,
        num_dense_cols=num_dense_cols,
        deterministic=deterministic,
    )


def make_candidate(program: str, candidate_id: str = "candidate") -> Candidate:
    return Candidate(candidate_id=candidate_id, program=program, origin=UserWritten())


@dataclass
class Evaluator:
    """Evaluates one candidate after the other on one workload."""

    workload: Workload
    workbench: Workbench
    compiler: Compiler

    def outcome(self, program: str, race: Race | None = None) -> Outcome:
        with CompilationsAhead(self.compiler, "sm_90", COMPILE_LIMIT_S) as ahead:
            parsed = parse_candidate(make_candidate(program), self.workload)
            return evaluate_kernel(parsed, ahead.result, self.workbench, race or Race(baseline_us=1e9))


def make_evaluator(process: DeviceProcess, compiler: Compiler) -> Evaluator:
    pattern = make_pattern()
    workload = make_workload(pattern)
    return Evaluator(workload, process.open(Problem(workload, pattern)), compiler)


def message_of(outcome: Outcome) -> str:
    """What is said of a failure; nothing of a program that passed."""
    match outcome:
        case Passed():
            return ""
        case CompileFailed():
            return outcome.log
        case _:
            return outcome.message
