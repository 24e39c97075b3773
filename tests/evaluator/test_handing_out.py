"""A kernel that is wanted at once: format, compilation and input side by side, one check, no timing."""

import json
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from services.evaluator.candidates import fill_numbers, parse_candidates
from services.evaluator.compiling.compiler import Compiled, Compiler, KeptPrograms
from services.evaluator.devices import InterpreterFactory
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from services.evaluator.jobs import Grader, job_of
from services.evaluator.local import HeldMatrix
from sparsesmith.families.usual import USUAL_FILE, usual_programs
from sparsesmith.matrix.pattern import pattern_from_indices
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.texts import programs_for
from sparsesmith.program.program import KernelProgram
from sparsesmith.tuning.instant import choices, filled_in
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.evaluation import EvaluationJob, FirstOutcome, InstantJob
from sparsesmith_proto.kernel import Checked, CompileFailed, Mismatch, Passed, Rejected, Workload
from tests.evaluator.grading_tools import make_candidate, make_pattern, make_workload

PROGRAMS = programs_for(operation_named("spmv"), "float32")
PATTERN = make_pattern()


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1, timeout_s=120) as compiler:
        compiler.warm_up("sm_90")
        yield compiler


@pytest.fixture(scope="module")
def grader(compiler: Compiler) -> Iterator[Grader]:
    process = DeviceProcess(InterpreterFactory("sm_90"), StageLimits(start_s=600))
    yield Grader(process, compiler)
    process.close()


def outcome_of(grader: Grader, program: str, *, deterministic: bool = False) -> FirstOutcome:
    workload = make_workload(PATTERN, deterministic=deterministic)
    job = InstantJob(job_id="now", workload=workload, candidate=make_candidate(program))
    report = grader.hand_out(job, HeldMatrix(PATTERN, None))
    assert report.job_id == "now"
    return report.outcome


def test_a_right_program_is_checked_and_not_timed(grader: Grader) -> None:
    checked = outcome_of(grader, PROGRAMS["plain_csr_scalar"])
    assert isinstance(checked, Checked), checked
    assert checked.storage_format == "csr"
    assert 0 < checked.worst_error < 1e-6


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (("y[row] = sum", "y[row] = 2 * sum"), Mismatch),
        (("y[row] = sum", "y[row] = summe"), CompileFailed),
        (("//@ format csr", "//@ format nonesuch"), Rejected),
    ],
)
def test_what_is_wrong_is_told_as_it_always_is(grader: Grader, change: tuple[str, str], outcome: type) -> None:
    text = PROGRAMS["plain_csr_scalar"]
    assert change[0] in text
    assert isinstance(outcome_of(grader, text.replace(*change)), outcome)


def test_atomic_sums_are_refused_where_equal_bits_are_promised(grader: Grader) -> None:
    text = PROGRAMS["plain_coo_atomic"]
    assert isinstance(outcome_of(grader, text), Checked)
    assert isinstance(outcome_of(grader, text, deterministic=True), Rejected)


def test_the_full_protocol_follows_in_the_same_child(grader: Grader) -> None:
    text, workload = PROGRAMS["plain_csr_vector"], make_workload(PATTERN)
    assert isinstance(outcome_of(grader, text), Checked)
    job = EvaluationJob(job_id="later", workload=workload, candidates=(make_candidate(text),))
    (evaluation,) = grader.grade(job, HeldMatrix(PATTERN, None)).evaluations
    assert isinstance(evaluation.outcome, Passed)
    assert evaluation.outcome.num_inputs == 5


def test_a_text_that_was_compiled_lately_is_there_at_once(compiler: Compiler) -> None:
    source = 'extern "C" __global__ void once(float* y) { y[0] = 7.0f; }'
    first = compiler.compile(source, "sm_90")
    assert isinstance(first, Compiled)
    assert compiler.submit(source, "sm_90").done()
    assert compiler.compile(source, "sm_90") is first
    other = compiler.compile(source, "sm_80")
    assert isinstance(other, Compiled)
    assert other.cubin != first.cubin


def test_usual_programs_are_there_at_once_when_they_are_compiled() -> None:
    first, second, *_ = (each.source for each in usual_programs())
    with Compiler(1, timeout_s=120) as compiler:
        compiler.compile_meanwhile(iter([first, "this is no program", second]), "sm_90")
        compiler.wait_for_meanwhile()
        assert compiler.submit(first, "sm_90").done()
        assert compiler.submit(second, "sm_90").done()
        compiler.compile_meanwhile(repeat(f"{first} // again and again"), "sm_90")
    # What has no end ends with the compiler.


def test_what_is_chosen_for_even_rows_is_a_usual_program() -> None:
    even = pattern_from_indices(5000, 5000, np.repeat(np.arange(5000), 9), np.arange(45_000) * 7919 % 5000)
    workload = Workload(pattern=even.digest, operation="spmv", element_type="float32")
    cost = CostModels(Path(__file__).parents[2] / "models" / "cost-h200").on("NVIDIA H200")
    problem = Problem(workload, even)
    candidate = make_candidate(next(choices(problem, cost)).instance.written)
    (parsed,) = parse_candidates(fill_numbers([candidate], problem, 132), problem)
    assert isinstance(parsed.program, KernelProgram)
    assert parsed.program.source in {each.source for each in usual_programs()}


def test_a_choice_is_sent_as_an_evaluator_would_fill_it_in() -> None:
    problem = Problem(make_workload(PATTERN), PATTERN)
    cost = CostModels(Path(__file__).parents[2] / "models" / "cost-h200").on("NVIDIA H200")
    candidates = [(make_candidate(each.instance.written), each.instance) for each in choices(problem, cost)]
    assert {instance.open_program is None for _, instance in candidates} == {True, False}
    for candidate, instance in candidates:
        (filled,) = fill_numbers([candidate], problem, 132)
        assert filled.candidate == filled_in(candidate, instance)


def test_every_usual_program_is_one_that_a_family_writes() -> None:
    assert len(list(usual_programs())) == len(json.loads(USUAL_FILE.read_text(encoding="utf-8")))


def test_what_fails_to_compile_is_compiled_again(compiler: Compiler) -> None:
    compiler.compile("this is no program", "sm_90")
    assert not compiler.submit("this is no program", "sm_90").done()


def test_kept_programs_take_no_more_than_they_may_and_the_least_used_go(compiler: Compiler) -> None:
    binary = compiler.compile('extern "C" __global__ void once(float* y) { y[0] = 7.0f; }', "sm_90")
    assert isinstance(binary, Compiled)
    size = len(binary.ptx) + len(binary.cubin) + len(binary.log) + 1
    kept = KeptPrograms(max_bytes=3 * size)
    for source in ("a", "b", "c"):
        kept.add(source, "sm_90", binary)
    assert kept.get("a", "sm_90") is binary
    kept.add("d", "sm_90", binary)
    kept.add("d", "sm_90", binary)
    assert [source for source in "abcd" if kept.get(source, "sm_90") is not None] == ["a", "c", "d"]
    assert kept.num_bytes == 3 * size


def test_a_job_is_told_by_its_kind_and_one_without_is_refused_as_an_evaluation() -> None:
    workload = make_workload(PATTERN)
    now = InstantJob(job_id="now", workload=workload, candidate=make_candidate("program"))
    later = EvaluationJob(job_id="later", workload=workload, candidates=(make_candidate("program"),))
    assert job_of(now.model_dump_json()) == now
    assert job_of(later.model_dump_json()) == later
    with pytest.raises(ValidationError, match="1 validation error for EvaluationJob\nbudget_s"):
        job_of(later.model_dump_json().replace('"budget_s":300.0', '"budget_s":5000'))
    with pytest.raises(ValidationError, match="1 validation error for EvaluationJob"):
        job_of("no JSON")
