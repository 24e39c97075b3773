"""The interpreter as a device: formats, operations and element types through the same protocol as a GPU."""

from collections.abc import Iterator

import pytest

from services.evaluator.candidates import parse_candidate
from services.evaluator.checking.correctness import Correct
from services.evaluator.checking.draws import choose_draws, system_generator
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.device import BuiltMatrix, Ran
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.interpreter import Finding
from services.evaluator.interpreter.device import MAX_PRODUCTS, InterpretedKernel, InterpreterDevice, failure
from services.evaluator.interpreter.plain_kernels import plain_programs
from services.evaluator.isolation.workbench import LocalWorkbench
from services.evaluator.race import Race
from sparsesmith.errors import LimitExceeded
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.operations import Problem
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import Crashed, EstimatedTiming, Mismatch, Passed, TimedOut, Workload
from sparsesmith_proto.message import ElementType, Operation
from tests.evaluator.grading_tools import make_candidate, make_pattern, make_workload


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1, timeout_s=120) as compiler:
        yield compiler


def make_workbench(workload: Workload) -> LocalWorkbench:
    return LocalWorkbench(InterpreterDevice(), Problem(workload, make_pattern()))


def workload_of(operation: Operation, element_type: ElementType) -> Workload:
    return make_workload(make_pattern(), operation, element_type, 1 if operation == "spmv" else 5)


@pytest.mark.parametrize("operation", ["spmv", "spmm"])
@pytest.mark.parametrize("element_type", ["float32", "float64"])
def test_the_baselines_are_plain_kernels_with_estimated_times(operation: Operation, element_type: ElementType) -> None:
    baselines = make_workbench(workload_of(operation, element_type)).baselines()
    assert baselines.default == "plain_csr_vector"
    assert {routine.routine for routine in baselines.routines} >= {"plain_csr_vector", "plain_csr_scalar"}
    assert all(isinstance(routine.timing, EstimatedTiming) for routine in baselines.routines)
    assert all(routine.timing.median_us > 0 for routine in baselines.routines)


@pytest.mark.parametrize("operation", ["spmv", "spmm"])
@pytest.mark.parametrize("element_type", ["float32", "float64"])
def test_plain_programs_pass_the_whole_evaluation(
    compiler: Compiler, operation: Operation, element_type: ElementType
) -> None:
    workload = workload_of(operation, element_type)
    workbench = make_workbench(workload)
    for text in plain_programs(workload).values():
        with CompilationsAhead(compiler, "sm_90", 20) as ahead:
            parsed = parse_candidate(make_candidate(text), workload)
            outcome = evaluate_kernel(parsed, ahead.result, workbench, Race(baseline_us=1e9))
        assert isinstance(outcome, Passed), outcome
        assert outcome.num_inputs == 5
        assert isinstance(outcome.timing, EstimatedTiming)


def test_a_csr_kernel_that_reads_more_takes_longer_by_estimate(compiler: Compiler) -> None:
    workload = workload_of("spmv", "float32")
    workbench = make_workbench(workload)
    once = plain_programs(workload)["plain_csr_scalar"]
    extra = "y[row] = sum;\n  for (int k = 0; k < nnz; ++k) sum += values[k];\n  if (sum == 0.123f) y[row] = sum;"
    times = []
    for text in (once, once.replace("y[row] = sum;", extra)):
        program = parse_program(text, "spmv", "float32")
        binary = compiler.compile(program.source, "sm_90")
        assert isinstance(binary, Compiled)
        assert isinstance(workbench.check(text, program, binary), Correct)
        timing = workbench.time(text)
        assert isinstance(timing, EstimatedTiming)
        times.append(timing.median_us)
    assert times[1] > times[0]


SKIPS_ZEROS = """//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices,
                                const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++)
    if (x[col_indices[j]] != 0) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
"""


def test_a_kernel_that_skips_zeros_is_timed_on_inputs_without_them(compiler: Compiler) -> None:
    program = parse_program(SKIPS_ZEROS, "spmv", "float32")
    binary = compiler.compile(program.source, "sm_90")
    assert isinstance(binary, Compiled)
    device_workload = InterpreterDevice().open(Problem(workload_of("spmv", "float32"), make_pattern()))
    matrix = BuiltMatrix("csr", program.format.build(make_pattern(), program.parameters), 0, 0)
    full, mostly_zeros = device_workload.draw("uniform"), device_workload.draw("one_hot")
    times_us = []
    for inputs in ([full], [full, mostly_zeros], [mostly_zeros]):
        kernel = device_workload.load(program, matrix, binary)
        assert isinstance(kernel, InterpretedKernel)
        for held in inputs:
            assert isinstance(kernel.run(held, None), Ran)
        times_us.append(kernel.time(full).median_us)
    assert times_us[0] == times_us[1] > times_us[2]


def test_all_five_inputs_are_used_up_to_half_a_million_products() -> None:
    assert len(choose_draws(500_000, MAX_PRODUCTS, system_generator())) == 5
    assert len(choose_draws(600_000, MAX_PRODUCTS, system_generator())) < 5


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("out_of_bounds", Crashed),
        ("misaligned", Crashed),
        ("write_to_read_only", Crashed),
        ("uninitialised_shared", Crashed),
        ("trap", Crashed),
        ("invalid_launch", Crashed),
        ("race", Mismatch),
        ("deadlock", TimedOut),
        ("step_limit", TimedOut),
        ("endless", TimedOut),
    ],
)
def test_every_finding_has_an_outcome_that_keeps_its_message(kind: str, outcome: type) -> None:
    finding = Finding(kind, "what (line 3, block (0, 0, 0), thread (1, 0, 0))", 3, (0, 0, 0), (1, 0, 0))  # type: ignore[arg-type]
    result = failure(finding, "input uniform, kernel spmv")
    assert isinstance(result, outcome)
    assert result.message == "input uniform, kernel spmv: what (line 3, block (0, 0, 0), thread (1, 0, 0))"


def test_the_device_says_that_it_is_an_interpreter() -> None:
    description = InterpreterDevice("sm_80").description()
    assert (description.kind, description.name, description.architecture) == ("interpreter", "PTX interpreter", "sm_80")
    assert description.versions["numba"]
    assert (description.versions["options"], description.toolchain.split(", ")[2:]) == (
        "-std=c++17",
        ["-std=c++17", "sm_80"],
    )


def make_hypersparse_pattern(num_rows: int, num_cols: int = 1) -> Pattern:
    return pattern_from_indices(num_rows, num_cols, [num_rows - 1], [num_cols - 1])


def test_a_million_empty_rows_are_no_endless_loop() -> None:
    pattern = make_hypersparse_pattern(1_000_000)
    workbench = LocalWorkbench(InterpreterDevice(), Problem(make_workload(pattern), pattern))
    assert len(workbench.baselines().routines) == 3


def test_empty_rows_count_when_inputs_are_chosen() -> None:
    def num_draws(num_rows: int) -> int:
        pattern = make_hypersparse_pattern(num_rows)
        device_workload = InterpreterDevice().open(Problem(make_workload(pattern), pattern))
        return len(choose_draws(pattern.nnz, device_workload.max_products, system_generator()))

    assert (num_draws(500_000), num_draws(2_000_000)) == (5, 2)


@pytest.mark.parametrize(
    ("pattern", "num_dense_cols", "message"),
    [
        (make_hypersparse_pattern(10_000_001), 1, "10000001 rows: without a GPU, at most 10000000"),
        (make_hypersparse_pattern(10, 1_000_000), 1000, "1000010000 elements in the dense operands"),
    ],
)
def test_what_the_interpreter_cannot_end_in_time_is_refused_at_once(
    pattern: Pattern, num_dense_cols: int, message: str
) -> None:
    with pytest.raises(LimitExceeded, match=message):
        InterpreterDevice().open(Problem(make_workload(pattern, "spmm", num_dense_cols=num_dense_cols), pattern))
