"""Jobs through a real queue: the RQ entry, reward records, the worker process, its health check and its clean stop."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from services.evaluator import jobs
from services.evaluator.compiling.compiler import Compiled, CompileError, Compiler
from services.evaluator.interpreter.plain_kernels import plain_programs
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from services.evaluator.jobs import Grader, GradingService, record_id, reward_records
from sparsesmith.errors import LimitExceeded, NotFound
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import fixed_values
from sparsesmith.program.extraction import extract_program
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.transport.accounts import Accounts
from sparsesmith.transport.connection import Redis, connect
from sparsesmith.transport.job_store import Asker, JobStore
from sparsesmith.transport.keys import KeyStore
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.queue import EvaluationQueue
from sparsesmith.transport.stream import RewardStream
from sparsesmith_proto.api import JobStatus, Queued
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import (
    Candidate,
    FromFamily,
    Parent,
    Prompt,
    Rejected,
    Sampled,
    TimedOut,
    UserWritten,
    Written,
)
from sparsesmith_proto.keys import Quotas
from tests.evaluator.grading_tools import make_pattern, make_workload
from tests.evaluator.misbehaving_device import MisbehavingFactory, program_text

LIMITS = StageLimits(start_s=60, check_s=3, time_s=3)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    valkey = EmbeddedValkey(tmp_path_factory.mktemp("valkey"))
    valkey.start()
    yield valkey.address
    valkey.stop()


@pytest.fixture
def connection(address: str) -> Redis:
    connection = connect(address)
    connection.flushall()
    return connection


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    process = DeviceProcess(MisbehavingFactory(), LIMITS)
    with Compiler(1, timeout_s=120) as compiler:
        yield Grader(process, compiler)
    process.close()


def small_pattern() -> Pattern:
    return make_pattern(20, 20, 0.2)


def sampled() -> Sampled:
    return Sampled(
        prompt=Prompt(encoder="structural", sample_seed=1, architecture="sm_90"),
        group="group",
        token_ids=(1, 2),
        logprobs=(-0.5, -1.0),
        temperature=1,
        first_version=3,
        last_version=4,
    )


def make_job(*programs: str, job_id: str = "job", budget_s: float = 60, is_sampled: bool = True) -> EvaluationJob:
    candidates = tuple(
        Candidate(
            candidate_id=f"candidate-{position}", program=program, origin=sampled() if is_sampled else UserWritten()
        )
        for position, program in enumerate(programs)
    )
    return EvaluationJob(
        job_id=job_id, workload=make_workload(small_pattern()), candidates=candidates, budget_s=budget_s
    )


def grade(job: EvaluationJob, grader: Grader, connection: Redis) -> EvaluationReport:
    patterns = PatternStore(connection)
    patterns.put(small_pattern())
    jobs.install(GradingService(grader, patterns, RewardStream(connection), Accounts(connection)))
    return EvaluationReport.model_validate_json(jobs.grade(job.model_dump_json()))


def test_the_entry_takes_and_returns_json_and_publishes_one_record_a_sampled_candidate(
    grader: Grader, connection: Redis
) -> None:
    job = make_job(program_text("right 5"), program_text("die"), program_text("right 5"))
    report = grade(job, grader, connection)
    assert [evaluation.outcome.outcome for evaluation in report.evaluations] == ["passed", "crashed", "passed"]
    records = [delivery.record for delivery in RewardStream(connection).read("test", 10, 100)]
    assert [record.record_id for record in records] == ["job:candidate-0", "job:candidate-1", "job:candidate-2"]
    assert [record.outcome for record in records] == [evaluation.outcome for evaluation in report.evaluations]
    assert records[0].best_baseline_us == 9
    assert records[0].rewards["milestone"] > 0 > records[1].rewards["milestone"]


def test_a_report_says_how_long_each_stage_of_the_job_took(grader: Grader, connection: Redis) -> None:
    began = time.monotonic()
    report = grade(make_job(program_text("right 5"), program_text("right 6"), job_id="staged"), grader, connection)
    took_ms = (time.monotonic() - began) * 1e3
    assert {"load", "open", "draw", "formats", "candidates", "finals", "inspections"} <= report.stages_ms.keys()
    assert 0 < report.stages_ms["candidates"] < sum(report.stages_ms.values()) <= took_ms


def test_a_report_holds_ptx_of_what_passed_where_the_job_asks_for_it(grader: Grader, connection: Redis) -> None:
    job = make_job(program_text("right 5"), program_text("die"))
    assert grade(job, grader, connection).listings == {}
    report = grade(job.model_copy(update={"job_id": "listed", "listings": True}), grader, connection)
    assert report.listings.keys() == {"candidate-0"}
    assert ".visible .entry spmv" in report.listings["candidate-0"]
    lines = program_text("right 5").split("\n")
    located = {int(line.split()[2]) for line in report.listings["candidate-0"].split("\n") if line.startswith(".loc ")}
    assert located
    assert located <= set(range(len(lines) + 1))


def test_a_report_holds_profiles_of_what_passed_where_the_job_asks_for_them(grader: Grader, connection: Redis) -> None:
    job = make_job(program_text("right 5"), program_text("die"))
    assert grade(job, grader, connection).profiles == ()
    (profile,) = grade(job.model_copy(update={"job_id": "told", "profiles": True}), grader, connection).profiles
    assert profile.candidate_id == "candidate-0"
    assert [launch.kernel for launch in profile.launches] == ["spmv"]


def test_programs_of_other_models_are_recorded_only_where_a_setting_says_so(grader: Grader, connection: Redis) -> None:
    written = Written(writer="endpoint", model="m", parent=None, generation=1, report="", seconds=1)
    job = make_job(program_text("right 5"))
    candidates = (job.candidates[0].model_copy(update={"origin": written}),)
    job = job.model_copy(update={"candidates": candidates})
    report = grade(job, grader, connection)
    known = report.baselines.best_routine().timing
    assert reward_records(job, report, known) == []
    assert len(reward_records(job, report, known, (Written,))) == 1


def test_the_time_of_a_job_is_charged_to_the_key_that_asked_for_it_also_where_it_came_to_nothing(
    grader: Grader, connection: Redis
) -> None:
    key, _ = KeyStore(connection).create("alice", Quotas())
    status = JobStatus(job_id="abc", accepted_at="2026-11-22T00:00:00Z", status=Queued(position=0))
    JobStore(connection).accept(status, "r", None, Asker("192.0.2.7", key))
    accounts, seen = Accounts(connection), [0.0]
    for job in (
        make_job(program_text("right 5"), job_id="abc.0f0f0f0f-0"),
        make_job(program_text("right 5"), job_id="abc.listing.answer"),
        make_job(program_text("right 5"), job_id="abc.0f0f0f0f-1", budget_s=1e-6),
    ):
        with suppress(LimitExceeded):
            grade(job, grader, connection)
        seen.append(accounts.used(key.key_id).evaluator_seconds)
    assert sorted(set(seen)) == seen
    grade(make_job(program_text("right 5"), job_id="nobodys.0f0f0f0f-0"), grader, connection)
    assert accounts.used(key.key_id).evaluator_seconds == seen[-1]


def test_a_job_graded_twice_publishes_its_records_once(grader: Grader, connection: Redis) -> None:
    job = make_job(program_text("right 5"))
    grade(job, grader, connection)
    grade(job, grader, connection)
    assert len(RewardStream(connection).read("test", 10, 100)) == 1


def test_a_text_that_was_graded_for_a_search_is_not_graded_again_and_its_sample_is_rewarded_alike(
    grader: Grader, connection: Redis
) -> None:
    die, right = program_text("die"), program_text("right 5")
    first = make_job(die, right, job_id="first").model_copy(update={"search": "run"})
    grade(first, grader, connection)
    second = make_job(die, right, program_text("right 6"), job_id="second").model_copy(update={"search": "run"})
    report = grade(second, grader, connection)
    assert [each.outcome.outcome for each in report.evaluations] == ["crashed", "passed", "passed"]
    assert grader._process.is_running(), "the text that kills its process was not run again"
    records = {each.record.record_id: each.record for each in RewardStream(connection).read("test", 10, 100)}
    assert records["second:candidate-0"].rewards == records["first:candidate-0"].rewards
    assert records["second:candidate-1"].outcome == records["first:candidate-1"].outcome
    assert len(records) == 5
    other = make_job(die, job_id="third").model_copy(update={"search": "another"})
    grade(other, grader, connection)
    assert not grader._process.is_running(), "another search grades for itself"


def test_an_improvement_is_one_over_what_was_known_before_the_search(grader: Grader, connection: Redis) -> None:
    def graded(job_id: str, search: str, *programs: str) -> dict[str, float]:
        job = make_job(*(program_text(each) for each in programs), job_id=job_id)
        report = service.grade(job.model_copy(update={"search": search}))
        assert all(each.outcome.outcome == "passed" for each in report.evaluations)
        records = [each.record for each in stream.read("test", 10, 100)]
        assert len({record.rival_us for record in records}) == 1
        assert records[0].rival_us is not None
        return {"rival_us": records[0].rival_us} | {
            record.record_id: record.rewards["improvement"] for record in records
        }

    patterns, stream = PatternStore(connection), RewardStream(connection)
    patterns.put(small_pattern())
    service = GradingService(grader, patterns, stream, Accounts(connection))
    first = graded("a", "one", "right 8", "right 6")
    assert first["rival_us"] == 9, "the best routine"
    assert 0 < first["a:candidate-0"] < first["a:candidate-1"]
    again = graded("b", "one", "right 7")
    assert again["rival_us"] == 9, "as the search began"
    second = graded("c", "two", "right 8", "right 5", "right 1")
    assert second["rival_us"] == 6
    assert second["c:candidate-0"] < 0 < second["c:candidate-1"] < second["c:candidate-2"] == 1


def test_an_improvement_of_a_sample_with_a_parent_is_one_over_its_parent(grader: Grader, connection: Redis) -> None:
    parent = Parent(program=program_text("right 7"), report="passed")
    prompt = sampled().prompt.model_copy(update={"parent": parent})
    origin = sampled().model_copy(update={"prompt": prompt})
    job = make_job(program_text("right 7"), program_text("right 6"), program_text("right 8"))
    refined = tuple(each.model_copy(update={"origin": origin}) for each in job.candidates[1:])
    grade(job.model_copy(update={"candidates": (job.candidates[0], *refined)}), grader, connection)
    records = [delivery.record for delivery in RewardStream(connection).read("test", 10, 100)]
    assert [record.rival_us for record in records] == [9, 7, 7]
    assert records[1].rewards["improvement"] > 0 > records[2].rewards["improvement"]


def test_users_and_families_give_no_rewards(grader: Grader, connection: Redis) -> None:
    grade(make_job(program_text("right 5"), is_sampled=False), grader, connection)
    assert RewardStream(connection).read("test", 10, 50) == []


def test_an_evaluator_that_tells_of_all_tells_of_what_others_than_users_wrote_and_passed(
    grader: Grader, connection: Redis
) -> None:
    job = make_job(program_text("right 5"), program_text("right 6"), program_text("die"), is_sampled=False)
    family = FromFamily(family="csr_vector", parameters={})
    origins = (UserWritten(), family, family)
    candidates = (each.model_copy(update={"origin": o}) for each, o in zip(job.candidates, origins, strict=True))
    job = job.model_copy(update={"candidates": tuple(candidates)})
    report = grade(job, grader, connection)
    best = report.baselines.best_routine().timing
    assert reward_records(job, report, best) == []
    told = [each.candidate.candidate_id for each in reward_records(job, report, best, (FromFamily,))]
    assert told == ["candidate-1"]


def test_nothing_is_learned_from_values_that_the_policy_does_not_see(grader: Grader, connection: Redis) -> None:
    values = fixed_values(np.ones(small_pattern().nnz), "float32")
    PatternStore(connection).put_values(values)
    job = make_job(program_text("right 5"))
    fixed = job.model_copy(update={"workload": job.workload.model_copy(update={"values": values.digest})})
    report = grade(fixed, grader, connection)
    assert report.evaluations[0].outcome.outcome == "passed"
    assert RewardStream(connection).read("test", 10, 50) == []


def test_a_candidate_that_was_not_reached_teaches_nothing(grader: Grader, connection: Redis) -> None:
    job = make_job(*(program_text(f"hang {number}") for number in range(5)), budget_s=2.5)
    report = grade(job, grader, connection)
    stages = [each.outcome.stage for each in report.evaluations if isinstance(each.outcome, TimedOut)]
    assert len(stages) == 5
    assert "turn" in stages
    assert len(reward_records(job, report, report.baselines.best_routine().timing)) == stages.count("run")


def test_a_budget_that_is_spent_before_anything_is_graded_is_told(grader: Grader, connection: Redis) -> None:
    with pytest.raises(LimitExceeded, match="the budget of 1e-06 s was spent before anything was graded") as told:
        grade(make_job(program_text("right 5"), budget_s=1e-6), grader, connection)
    assert told.value.field == "budget.seconds"


def test_an_unknown_pattern_is_not_found(grader: Grader, connection: Redis) -> None:
    jobs.install(GradingService(grader, PatternStore(connection), RewardStream(connection), Accounts(connection)))
    with pytest.raises(NotFound):
        jobs.grade(make_job(program_text("right 5")).model_dump_json())


def test_a_record_id_stays_an_identifier_however_long_its_parts_are() -> None:
    assert record_id("job", "candidate") == "job:candidate"
    assert len(record_id("j" * 128, "c" * 128)) <= 128
    assert record_id("j" * 128, "c" * 128) != record_id("j" * 128, "d" * 128)


def run_evaluator(address: str, *options: str) -> "subprocess.Popen[str]":
    environment = {
        **os.environ,
        "SPARSESMITH_REDIS_URL": address,
        "SPARSESMITH_EVALUATOR_DEVICE": "interpreter",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "proto"), os.environ.get("PYTHONPATH", ""))),
    }
    command = [sys.executable, "-m", "services.evaluator", *options]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_a_worker_that_is_told_to_stop_gives_its_job_back_soon(address: str, connection: Redis) -> None:
    PatternStore(connection).put(small_pattern())
    endless = (ROOT / "tests" / "kernels" / "broken" / "endless_loop.cu").read_text()
    job = make_job(*(endless.replace("+= 1;", f"+= {number};") for number in range(1, 60)), job_id="long")
    queue = EvaluationQueue(connection)
    queue.submit(job)
    worker = run_evaluator(address)
    try:
        while queue.depth() > 0:
            time.sleep(0.05)
        time.sleep(2)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(120) == 0
        assert queue.depth() == 1
    finally:
        worker.kill()
        worker.communicate()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_process_grades_on_the_interpreter_is_healthy_and_leaves_nothing_behind(
    address: str, connection: Redis
) -> None:
    PatternStore(connection).put(small_pattern())
    job = make_job(*plain_programs(make_workload(small_pattern())).values(), "no program", job_id="whole")
    queue = EvaluationQueue(connection)
    queue.submit(job)
    worker = run_evaluator(address)
    try:
        report = queue.wait("whole", 250)
        assert report is not None
        assert [evaluation.outcome.outcome for evaluation in report.evaluations] == ["passed"] * 3 + ["rejected"]
        assert report.device.kind == "interpreter"
        assert len(RewardStream(connection).read("test", 10, 100)) == 4
        assert run_evaluator(address, "--check").wait(30) == 0
        children = children_of(worker.pid)
        assert children
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
        end = time.monotonic() + 5
        while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < end:
            time.sleep(0.05)
        assert not any(Path(f"/proc/{child}").exists() for child in children)
    finally:
        worker.kill()
        worker.communicate()
    check = run_evaluator(address, "--check")
    assert "no evaluator of this machine" in check.communicate(timeout=30)[1]
    assert check.returncode == 1


class CountingCompiler(Compiler):
    """Knows what it was asked for."""

    def __init__(self) -> None:
        super().__init__(1)
        self.sources: list[str] = []

    def submit(self, source: str, architecture: str) -> "Future[Compiled | CompileError]":
        self.sources.append(source)
        return super().submit(source, architecture)


@contextmanager
def counted(function: Callable[..., Any]) -> Iterator[Counter[str]]:
    """How often a function is called in this thread and those that start meanwhile, by its first argument."""
    calls: Counter[str] = Counter()

    def look(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code is function.__code__:
            calls[str(frame.f_locals[function.__code__.co_varnames[0]])] += 1

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def test_a_candidates_text_is_parsed_once(grader: Grader, connection: Redis) -> None:
    texts = [program_text("right 5"), "no program", program_text("right 6"), program_text("right 5")]
    texts[2] = texts[2].replace("//@ launch", "//@ require num_rows=20\n//@ launch")
    with counted(extract_program) as extracted:
        report = grade(make_job(*texts), grader, connection)
    assert [each.outcome.outcome for each in report.evaluations] == ["passed", "rejected", "passed", "passed"]
    assert extracted == Counter(set(texts))


def test_a_program_for_another_matrix_is_rejected_and_never_compiled(connection: Redis) -> None:
    requiring = program_text("right 5").replace("//@ launch", "//@ require num_rows=21\n//@ launch")
    process = DeviceProcess(MisbehavingFactory(), LIMITS)
    try:
        compiler = CountingCompiler()
        with compiler:
            report = grade(make_job(requiring, program_text("right 6")), Grader(process, compiler), connection)
    finally:
        process.close()
    rejected, passed = (each.outcome for each in report.evaluations)
    assert rejected == Rejected(message="line 2: the program requires num_rows=21, this matrix has 20")
    assert passed.outcome == "passed"
    assert len(compiler.sources) == 1
