"""On a GPU: equal bits in every run, at every placement, in a second context; comparison with routines alike."""

from collections.abc import Iterator

import pytest

from services.evaluator.compiling.compiler import Compiler
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.jobs import Grader
from services.evaluator.local import HeldMatrix
from sparsesmith.families.proposal import propose
from sparsesmith.program.atomics import is_ordered
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Passed, Rejected, Repeats
from sparsesmith_proto.message import ElementType, Operation
from tests.evaluator.grading_tools import make_candidate
from tests.gpu import programs
from tests.gpu.programs import make_pattern, make_workload

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(4) as compiler:
        yield compiler


def graded(
    sandbox: DeviceProcess,
    compiler: Compiler,
    texts: list[str],
    operation: Operation = "spmv",
    element_type: ElementType = "float32",
    num_dense_cols: int = 1,
) -> EvaluationReport:
    pattern = make_pattern()
    workload = make_workload(
        pattern, operation=operation, element_type=element_type, num_dense_cols=num_dense_cols, deterministic=True
    )
    candidates = tuple(make_candidate(text, f"candidate-{place}") for place, text in enumerate(texts))
    job = EvaluationJob(job_id="job", workload=workload, candidates=candidates)
    return Grader(sandbox, compiler).grade(job, HeldMatrix(pattern, None))


def test_atomic_sums_are_rejected_and_the_fastest_of_the_others_says_in_how_many_runs_it_was_equal(
    sandbox: DeviceProcess, compiler: Compiler
) -> None:
    report = graded(sandbox, compiler, [programs.COO_TWO_LAUNCHES, programs.GOOD, programs.WARP_A_ROW])
    refused, *others = (evaluation.outcome for evaluation in report.evaluations)
    assert isinstance(refused, Rejected), refused
    assert "deterministic=true" in refused.message
    assert all(isinstance(outcome, Passed) for outcome in others), others
    repeats = [outcome.repeats for outcome in others if isinstance(outcome, Passed)]
    assert all(repeat in (Repeats(runs=16, contexts=1), Repeats(runs=32, contexts=2)) for repeat in repeats), repeats


@pytest.mark.parametrize("element_type", ["float32", "float64"])
def test_the_best_of_the_families_are_equal_in_two_contexts(
    sandbox: DeviceProcess, compiler: Compiler, element_type: ElementType
) -> None:
    instances = propose(make_pattern(), "spmv", element_type, limit=24)
    texts = [each.program for each in instances if is_ordered(each.program)]
    report = graded(sandbox, compiler, texts, element_type=element_type)
    passed = [each.outcome for each in report.evaluations if isinstance(each.outcome, Passed)]
    assert len(passed) == len(texts), report.evaluations
    best = min(passed, key=lambda outcome: outcome.standing)
    assert best.repeats == Repeats(runs=32, contexts=2)


@pytest.mark.parametrize(("operation", "num_dense_cols"), [("spmv", 1), ("spmm", 8)])
def test_the_routines_compared_with_are_those_that_the_library_calls_deterministic(
    sandbox: DeviceProcess, compiler: Compiler, operation: Operation, num_dense_cols: int
) -> None:
    text = programs.GOOD if operation == "spmv" else programs.SPMM
    report = graded(sandbox, compiler, [text], operation, num_dense_cols=num_dense_cols)
    names = {routine.routine for routine in report.baselines.routines}
    assert report.baselines.default in names
    assert names <= {"cusparse_csr_alg2", "cusparse_csr_alg3", "cusparse_coo_alg2", "cusparse_sell_alg1"}
