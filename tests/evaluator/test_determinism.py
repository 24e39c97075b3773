"""`deterministic=true`: programs whose bits depend on an order are refused or found out, the others say so."""

from collections.abc import Iterator

import pytest

from services.evaluator.candidates import parse_candidate
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.interpreter.device import InterpreterDevice
from services.evaluator.isolation.sandbox import OTHER_CONTEXT, DeviceProcess, StageLimits
from services.evaluator.isolation.spares import SpareLimits
from services.evaluator.isolation.workbench import LocalWorkbench
from services.evaluator.jobs import Grader
from services.evaluator.local import HeldMatrix
from services.evaluator.race import Race
from sparsesmith.cuda.routines import default_routine, routines_for
from sparsesmith.families.proposal import propose
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.texts import programs_for
from sparsesmith.program.atomics import is_ordered
from sparsesmith_proto.evaluation import EvaluationJob
from sparsesmith_proto.kernel import Mismatch, Outcome, Passed, Rejected, Repeats
from sparsesmith_proto.message import Operation
from tests.evaluator.grading_tools import make_candidate, make_pattern, make_workload
from tests.evaluator.misbehaving_device import MisbehavingFactory, program_text

PROGRAMS = programs_for(operation_named("spmv"), "float32")

TICKETS = """//@ format csr
//@ launch spmv grid=num_rows block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices,
                                const float* values, const float* x, float* y) {
  __shared__ int tickets;
  __shared__ float parts[4];
  int row = blockIdx.x, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) tickets = 0;
  __syncthreads();
  float sum = 0;
  for (int k = row_offsets[row] + threadIdx.x; k < row_offsets[row + 1]; k += 128) sum += values[k] * x[col_indices[k]];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) parts[atomicAdd(&tickets, 1)] = sum;
  __syncthreads();
  if (threadIdx.x == 0) y[row] = ((parts[0] + parts[1]) + parts[2]) + parts[3];
}
"""
"""Right, and without one floating-point atomic; its warps add up in the order in which they come."""

SORTED_TICKETS = TICKETS.replace(
    "parts[atomicAdd(&tickets, 1)] = sum", "{ atomicAdd(&tickets, 1); parts[threadIdx.x / 32] = sum; }"
)


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1, timeout_s=120) as compiler:
        yield compiler


def dense_rows() -> Problem:
    """Rows of about 150 nonzeros: every warp of a block has some."""
    pattern = make_pattern(40, 400, 0.4)
    return Problem(make_workload(pattern, deterministic=True), pattern)


def outcome_of(text: str, problem: Problem, compiler: Compiler) -> Outcome:
    workbench = LocalWorkbench(InterpreterDevice(), problem)
    with CompilationsAhead(compiler, "sm_90", 20) as ahead:
        parsed = parse_candidate(make_candidate(text), problem.workload)
        return evaluate_kernel(parsed, ahead.result, workbench, Race(baseline_us=1e9))


def as_usual(problem: Problem) -> Problem:
    return Problem(problem.workload.model_copy(update={"deterministic": False}), problem.matrix)


def test_a_users_program_with_floating_point_atomics_is_rejected_with_the_line(compiler: Compiler) -> None:
    text = PROGRAMS["plain_coo_atomic"]
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "atomicAdd" in line)
    refused = outcome_of(text, dense_rows(), compiler)
    assert isinstance(refused, Rejected), refused
    assert refused.message.startswith(f"line {line}: red.global.add.f32: deterministic=true:") or (
        refused.message.startswith(f"line {line}: atom.global.add.f32: deterministic=true:")
    )
    assert isinstance(outcome_of(text, as_usual(dense_rows()), compiler), Passed)


@pytest.mark.parametrize(
    ("statement", "is_unordered"),
    [
        ("atomicAdd(y, 1.0f)", True),
        ("atomicAdd((double*)y, 1.0)", True),
        ("atomicExch((int*)y, 1)", True),
        ("atomicCAS((int*)y, 0, 1)", True),
        ('asm volatile("red.global.add.f32 [%0], %1;" :: "l"(y), "f"(1.0f) : "memory")', True),
        ("atomicAdd((int*)y, 1)", False),
        ("atomicMax((int*)y, 1)", False),
        ("*y = 1.0f", False),
    ],
)
def test_atomics_count_where_their_order_decides_the_bits(
    compiler: Compiler, statement: str, is_unordered: bool
) -> None:
    binary = compiler.compile(f'extern "C" __global__ void k(float* y) {{ {statement}; }}', "sm_90")
    assert isinstance(binary, Compiled), binary
    assert bool(binary.facts.kernels["k"].unordered) == is_unordered


def test_a_sum_in_the_order_in_which_warps_come_is_found_out(compiler: Compiler) -> None:
    usual = outcome_of(TICKETS, as_usual(dense_rows()), compiler)
    assert isinstance(usual, Passed), usual
    assert usual.repeats is None
    found_out = outcome_of(TICKETS, dense_rows(), compiler)
    assert isinstance(found_out, Mismatch), found_out
    assert "gave other bits than run 1" in found_out.message


def test_atomics_on_whole_numbers_are_welcome_where_their_order_decides_nothing(compiler: Compiler) -> None:
    passed = outcome_of(SORTED_TICKETS, dense_rows(), compiler)
    assert isinstance(passed, Passed), passed
    assert passed.repeats == Repeats(runs=16, contexts=1)


@pytest.mark.parametrize(("operation", "num_dense_cols"), [("spmv", 1), ("spmm", 4)])
def test_the_first_programs_of_the_families_give_equal_bits_with_blocks_in_random_order(
    compiler: Compiler, operation: Operation, num_dense_cols: int
) -> None:
    pattern = make_pattern(90, 90, 0.1)
    workload = make_workload(pattern, operation, "float32", num_dense_cols, deterministic=True)
    instances = propose(pattern, operation, "float32", num_dense_cols, limit=40)
    ordered = {each.family: each for each in reversed(instances) if is_ordered(each.program)}
    assert len(ordered) >= 3
    for family, instance in ordered.items():
        outcome = outcome_of(instance.program, Problem(workload, pattern), compiler)
        assert isinstance(outcome, Passed), (family, outcome)
        assert outcome.repeats == Repeats(runs=16, contexts=1)


def test_the_transpose_is_gathered_with_equal_bits_where_it_is_scattered_with_others(compiler: Compiler) -> None:
    pattern = make_pattern(90, 70, 0.1)
    workload = make_workload(pattern, "spmv_t", "float32", 1, deterministic=True)
    instances = propose(pattern, "spmv_t", "float32", 1, limit=12)
    ordered = {each.family: each for each in reversed(instances) if is_ordered(each.program)}
    assert {each.family for each in instances} == {"transposed_rows", "transposed_entries", "transposed_gather"}
    assert set(ordered) == {"transposed_gather"}
    outcome = outcome_of(ordered["transposed_gather"].program, Problem(workload, pattern), compiler)
    assert isinstance(outcome, Passed) and outcome.repeats == Repeats(runs=16, contexts=1)
    baselines = LocalWorkbench(InterpreterDevice(), Problem(workload, pattern)).baselines()
    assert [routine.routine for routine in baselines.routines] == ["plain_csc_scalar"]


def test_baselines_without_a_gpu_are_the_plain_programs_without_atomics() -> None:
    problem = dense_rows()
    usual = LocalWorkbench(InterpreterDevice(), as_usual(problem)).baselines()
    kept = LocalWorkbench(InterpreterDevice(), problem).baselines()
    names = {routine.routine for routine in kept.routines}
    assert {routine.routine for routine in usual.routines} - names == {"plain_coo_atomic"}
    assert kept.default == usual.default


def test_baselines_are_the_routines_that_the_library_calls_deterministic() -> None:
    of_spmv = [routine.name for routine in routines_for("spmv", (2, 4), deterministic=True)]
    assert of_spmv == ["cusparse_csr_alg2", "cusparse_coo_alg2", "cusparse_sell_alg1"]
    of_spmm = [routine.name for routine in routines_for("spmm", (2, 4), deterministic=True)]
    assert of_spmm == ["cusparse_csr_alg3", "cusparse_coo_alg2"]
    assert default_routine("spmv", deterministic=True) in of_spmv
    assert default_routine("spmm", deterministic=True) in of_spmm


def graded_in_children(compiler: Compiler, *behaviours: str) -> list[Outcome]:
    pattern = make_pattern()
    workload = make_workload(pattern, deterministic=True)
    candidates = tuple(
        make_candidate(program_text(behaviour), f"candidate-{place}") for place, behaviour in enumerate(behaviours)
    )
    process = DeviceProcess(MisbehavingFactory(), StageLimits(start_s=60), spares=SpareLimits(most=1))
    try:
        job = EvaluationJob(job_id="job", workload=workload, candidates=candidates)
        report = Grader(process, compiler).grade(job, HeldMatrix(pattern, None))
        return [evaluation.outcome for evaluation in report.evaluations]
    finally:
        process.close()


def test_finalists_are_run_in_a_second_context_and_must_give_the_same_bits_there(compiler: Compiler) -> None:
    steady, unsteady, by_process = graded_in_children(compiler, "right 5", "unsteady 5.01", "by_process 5.02")
    assert isinstance(steady, Passed), steady
    assert steady.repeats == Repeats(runs=32, contexts=2)
    assert isinstance(unsteady, Mismatch), unsteady
    assert "gave other bits than run 1" in unsteady.message
    assert by_process == Mismatch(message=OTHER_CONTEXT)


def test_what_is_no_finalist_says_in_how_many_contexts_it_was_run(compiler: Compiler) -> None:
    fast, slow = graded_in_children(compiler, "right 5", "right 8")
    assert isinstance(fast, Passed), fast
    assert isinstance(slow, Passed), slow
    assert fast.repeats == Repeats(runs=32, contexts=2)
    assert slow.repeats == Repeats(runs=16, contexts=1)
