"""What passed on a GPU runs on the interpreter once more: undefined reads are found, honest programs are left alone."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import scipy.sparse

from services.evaluator.allowance import UNHURRIED, Allowance, Stopped, allowance_of
from services.evaluator.candidates import Filled, parse_candidates, parse_text
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.device import Inspected
from services.evaluator.devices import InterpreterFactory
from services.evaluator.grading import Means, grade_batch
from services.evaluator.inspection import Found, Inspections, Inspector, NoInspections, inspection
from services.evaluator.isolation.sandbox import DeviceProcess, SandboxedWorkbench, StageLimits
from services.evaluator.jobs import Grader
from services.evaluator.local import HeldMatrix
from services.evaluator.stages import Stages
from sparsesmith.errors import Unavailable
from sparsesmith.families import FamilyInstance, propose
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.evaluation import EvaluationJob
from sparsesmith_proto.kernel import Crashed, Mismatch, Passed
from sparsesmith_proto.message import Operation
from tests.evaluator.grading_tools import make_candidate, make_pattern, make_workload
from tests.evaluator.misbehaving_device import MisbehavingFactory, program_text
from tests.kernels.corpus import CorpusProgram, corpus

PATIENCE_S = 120.0

HEAD = (
    "//@ format csr\n//@ launch spmv grid=ceil_div(num_rows,4) block=128\n"
    'extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, '
    "const int* col_indices, const float* values, const float* x, float* y) {\n"
    "  int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;\n  float sum = 0;\n"
    "  if (row < num_rows) for (int j = row_offsets[row] + lane; j < row_offsets[row + 1]; j += 32) "
    "sum += values[j] * x[col_indices[j]];\n"
    "  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);\n"
)
TAIL = "  if (row < num_rows && lane == 0) y[row] = sum;\n}\n"
HONEST = HEAD + TAIL
UNDEFINED = {
    "stack written on one path": "volatile float left[2]; if (row & 1) { left[0] = 0; left[1] = 0; } "
    "if (left[nnz & 1] == 63.25f) sum = 0;",
    "shared written on one path": "__shared__ float left[128]; if (row & 1) ((volatile float*)left)[threadIdx.x] = 0; "
    "if (((volatile float*)left)[threadIdx.x] == 77.0f) sum = 0;",
    "value beyond the last": "if (row == num_rows - 1 && values[nnz] == 77.0f) sum = 0;",
}
"""Each gives the right result on a GPU, but for one number in four thousand million."""


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1, timeout_s=60) as compiler:
        yield compiler


def interpreter() -> DeviceProcess:
    return DeviceProcess(InterpreterFactory("sm_90"), StageLimits())


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    with closing(Inspector(interpreter)) as inspector:
        inspector.wait_until_started()
        yield inspector


def large_pattern() -> Pattern:
    """More than is looked at whole."""
    return pattern_from_scipy(scipy.sparse.random(30_000, 3_000, 0.003, format="csr", random_state=1))


def found(text: str, problem: Problem, inspector: Inspector, compiler: Compiler) -> Found:
    program = parse_text(text, problem.workload)
    assert isinstance(program, KernelProgram), program
    binary = compiler.compile(program.source, "sm_90")
    assert isinstance(binary, Compiled), binary
    return inspection(inspector.of(problem), program, binary, PATIENCE_S)


@pytest.mark.parametrize("name", UNDEFINED)
@pytest.mark.parametrize("pattern", [make_pattern(), large_pattern()], ids=["whole", "some blocks"])
def test_a_read_that_is_undefined_is_found(
    name: str, pattern: Pattern, inspector: Inspector, compiler: Compiler
) -> None:
    problem = Problem(make_workload(pattern), pattern)
    refused = found(f"{HEAD}{{ {UNDEFINED[name]} }}\n{TAIL}", problem, inspector, compiler)
    assert isinstance(refused, Crashed)
    assert "line 8" in refused.message


@pytest.mark.parametrize(
    "name",
    [
        "cheating/work_skipped_after_many_launches",
        "broken/copies_not_waited_for",
        "broken/padding_read_beyond_x",
        "broken/scratch_read_before_written",
        "broken/barrier_missing_in_a_reduction",
    ],
)
def test_what_a_gpu_may_let_pass_is_found(name: str, inspector: Inspector, compiler: Compiler) -> None:
    (program,) = (each for each in corpus("cheating", "broken") if each.name == name)
    pattern = make_pattern(300, 301)
    workload = make_workload(pattern, program.operation, program.element_type, program.num_dense_cols)
    assert isinstance(found(program.text, Problem(workload, pattern), inspector, compiler), Crashed | Mismatch)


@pytest.mark.parametrize("program", corpus("good")[::3], ids=lambda program: program.name)
def test_good_programs_are_looked_at_whole_and_left_alone(
    program: CorpusProgram, inspector: Inspector, compiler: Compiler
) -> None:
    pattern = make_pattern(300, 301)
    workload = make_workload(pattern, program.operation, program.element_type, program.num_dense_cols)
    told = found(program.text, Problem(workload, pattern), inspector, compiler)
    assert isinstance(told, Inspected)
    assert told.num_blocks == told.of_blocks > 0


def blocks_in_turn(next_turn: str) -> str:
    """A good program whose blocks wait for each other, with the number of whose turn it is next."""
    (program,) = (each for each in corpus("good") if each.name == "good/csr_merge_blocks_in_turn")
    changed = program.text.replace("turn[0] = blockIdx.x + 1", f"turn[0] = {next_turn}")
    assert (changed == program.text) == (next_turn == "blockIdx.x + 1")
    return changed


@pytest.mark.parametrize(("next_turn", "outcome"), [("blockIdx.x + 1", Inspected), ("blockIdx.x - 1", Mismatch)])
def test_a_wait_that_only_the_schedule_lets_through_is_found_where_all_blocks_run(
    next_turn: str, outcome: type, inspector: Inspector, compiler: Compiler
) -> None:
    pattern, text = make_pattern(1000, 300, 0.02), blocks_in_turn(next_turn)
    told = found(text, Problem(make_workload(pattern), pattern), inspector, compiler)
    assert isinstance(told, outcome), told
    assert outcome is Inspected or "an endless loop, or a wait" in str(told)


@pytest.mark.parametrize("next_turn", ["blockIdx.x + 1", "blockIdx.x - 1"])
def test_a_wait_for_a_block_that_is_not_run_says_nothing(
    next_turn: str, inspector: Inspector, compiler: Compiler
) -> None:
    pattern = large_pattern()
    told = found(blocks_in_turn(next_turn), Problem(make_workload(pattern), pattern), inspector, compiler)
    assert isinstance(told, Inspected)
    assert told.num_blocks < told.of_blocks


def family_programs(pattern: Pattern, operation: Operation, num_dense_cols: int) -> list[FamilyInstance]:
    """Of each family that suits the pattern the most promising."""
    proposed = propose(pattern, operation, "float32", num_dense_cols, limit=200)
    return list({each.family: each for each in reversed(proposed)}.values())


@pytest.mark.parametrize(("operation", "num_dense_cols"), [("spmv", 1), ("spmm", 32)])
def test_of_a_large_problem_some_blocks_are_looked_at_and_families_are_left_alone(
    operation: Operation, num_dense_cols: int, inspector: Inspector, compiler: Compiler
) -> None:
    pattern = large_pattern()
    problem = Problem(make_workload(pattern, operation, "float32", num_dense_cols), pattern)
    shares = {}
    for each in family_programs(pattern, operation, num_dense_cols):
        told = found(each.program, problem, inspector, compiler)
        assert isinstance(told, Inspected), (each.family, told)
        shares[each.family] = told.num_blocks / told.of_blocks
    assert len(shares) > 3
    assert 0 < min(shares.values()) < 1, shares


def test_a_program_of_a_user_that_passes_and_is_undefined_has_not_passed(
    inspector: Inspector, compiler: Compiler
) -> None:
    """The device says of all three that they are right."""
    undefined = program_text("right 5").replace("{}", "{ if (values[nnz] == 77.0f) y[0] = 1; }")
    honest = program_text("right 6").replace("{}", "{ if (values[nnz - 1] == 77.0f) y[0] = 1; }")
    pattern = make_pattern(20, 20, 0.2)
    problem = Problem(make_workload(pattern), pattern)
    job = EvaluationJob(
        job_id="job",
        workload=problem.workload,
        candidates=(make_candidate(undefined, "undefined"), make_candidate(honest, "honest")),
    )
    process = DeviceProcess(MisbehavingFactory(), StageLimits(start_s=60))
    with closing(process), CompilationsAhead(compiler, "sm_90", 20) as ahead:
        workbench = process.open(problem)
        parsed = ahead.start(parse_candidates([Filled(each) for each in job.candidates], problem))
        means = Means(workbench, ahead, inspector.of(problem), Stages())
        allowance = allowance_of(job, 0, lambda: False, lambda: False)
        report = grade_batch(job, parsed, problem, means, workbench.baselines(), allowance)
    refused, passed = (each.outcome for each in report.evaluations)
    assert isinstance(refused, Crashed)
    assert "out-of-bounds read" in refused.message
    assert isinstance(passed, Passed)
    assert passed.inspected == 1


def test_without_an_interpreter_programs_pass_without_an_inspection() -> None:
    def fails() -> DeviceProcess:
        raise Unavailable("no memory")

    pattern = make_pattern()
    problem = Problem(make_workload(pattern), pattern)
    with closing(Inspector(fails)) as inspector:
        inspector.wait_until_started()
        assert isinstance(inspector.of(problem), NoInspections)


def test_nobody_waits_for_an_interpreter_that_still_starts() -> None:
    """Not at the end, either: on a new computer it compiles itself for minutes."""
    may_end = threading.Event()

    def slow() -> DeviceProcess:
        may_end.wait()
        raise Unavailable("it came too late")

    pattern = make_pattern()
    began = time.monotonic()
    with closing(Inspector(slow)) as inspector:
        assert isinstance(inspector.of(Problem(make_workload(pattern), pattern)), NoInspections)
    assert time.monotonic() - began < 5
    may_end.set()


def test_an_answer_that_takes_too_long_is_none_and_nothing_is_left_to_do(
    inspector: Inspector, compiler: Compiler
) -> None:
    pattern = large_pattern()
    problem = Problem(make_workload(pattern), pattern)
    program = parse_text(HONEST, problem.workload)
    assert isinstance(program, KernelProgram)
    binary = compiler.compile(program.source, "sm_90")
    assert isinstance(binary, Compiled)
    inspections = inspector.of(problem)
    for number in range(3):
        inspections.ask(str(number), program, binary)
    assert len(inspections.found(0.0)) < 3
    later = inspector.of(problem)
    later.ask("later", program, binary)
    assert isinstance(later.found(PATIENCE_S)["later"], Inspected)


class Waiting(DeviceProcess):
    """An interpreter whose first inspection waits for a word, and that counts them."""

    def __init__(self) -> None:
        super().__init__(InterpreterFactory("sm_90"), StageLimits())
        self.may_go_on = threading.Event()
        self.num_inspected = 0

    def open(self, problem: Problem, allowance: Allowance = UNHURRIED) -> SandboxedWorkbench:
        assert self.may_go_on.wait(PATIENCE_S)
        workbench = super().open(problem, allowance)
        inspect = workbench.inspect

        def counted(program: KernelProgram, binary: Compiled) -> Any:
            self.num_inspected += 1
            return inspect(program, binary)

        workbench.inspect = counted  # type: ignore[method-assign]
        return workbench


class Counted:
    """Inspections, and of how many programs they were asked."""

    def __init__(self, inspections: Inspections) -> None:
        self.num_asked = 0
        self._inspections = inspections
        self.found = inspections.found

    def ask(self, key: str, program: KernelProgram, binary: Compiled) -> None:
        self.num_asked += 1
        self._inspections.ask(key, program, binary)

    def close(self) -> None:
        self._inspections.close()


def test_nothing_of_a_job_that_is_given_back_half_way_stays_in_the_line(compiler: Compiler) -> None:
    pattern = make_pattern(20, 20, 0.2)
    workload = make_workload(pattern)
    texts = [program_text(f"right {number}") for number in range(5, 11)]
    job = EvaluationJob(
        job_id="job",
        workload=workload,
        candidates=tuple(make_candidate(text, f"c{number}") for number, text in enumerate(texts)),
    )
    interpreter, process = Waiting(), DeviceProcess(MisbehavingFactory(), StageLimits(start_s=60))
    with closing(Inspector(lambda: interpreter)) as inspector, closing(process):
        inspector.wait_until_started()
        counted = Counted(inspector.of(Problem(workload, pattern)))
        grader = Grader(
            process, compiler, inspections=lambda problem: counted, must_stop=lambda: counted.num_asked >= 4
        )
        with pytest.raises(Stopped):
            grader.grade(job, HeldMatrix(pattern, None))
        interpreter.may_go_on.set()
        later = inspector.of(Problem(workload, pattern))
        program = parse_text(HONEST, workload)
        assert isinstance(program, KernelProgram)
        binary = compiler.compile(program.source, "sm_90")
        assert isinstance(binary, Compiled)
        assert isinstance(inspection(later, program, binary, PATIENCE_S), Inspected)
        assert interpreter.num_inspected <= 2, "the one that was under way, and the later job's"
