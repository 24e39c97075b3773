"""A batch of candidates: order, duplicates, budget, racing, finals; one that kills its process harms no other."""

import math
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.evaluator.allowance import Allowance, BudgetSpent, Stopped, allowance_of
from services.evaluator.candidates import Filled, parse_candidates
from services.evaluator.checking.correctness import Correct
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.compiling.contract.facts import NO_FACTS
from services.evaluator.compiling.log import KernelResources
from services.evaluator.device import RunFailure, Timing
from services.evaluator.evaluation import heaviest_kernel, is_paid
from services.evaluator.grading import Means, grade_batch, unreached
from services.evaluator.inspection import PATIENCE_S, SHORT_PATIENCE_S, Found, Inspections, NoInspections
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from services.evaluator.isolation.spares import SpareLimits
from services.evaluator.isolation.workbench import Built, FinalTimes
from services.evaluator.race import MAX_FINALISTS, Race
from services.evaluator.stages import Stages
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport, LaunchProfile
from sparsesmith_proto.kernel import (
    AdverseTiming,
    Baselines,
    BaselineTiming,
    Candidate,
    DeviceDescription,
    FromFamily,
    MeasuredTiming,
    Mutated,
    Passed,
    Rejected,
    Repeats,
    Resources,
    TimedOut,
    UserWritten,
)
from tests.evaluator.grading_tools import make_candidate, make_pattern, make_workload
from tests.evaluator.misbehaving_device import MisbehavingFactory, measured, program_text

UNINSPECTED = NoInspections()
MUTATED = Mutated(parent="candidate", deed="unroll: 2", seed="1", generation=1, report="")
LIMITS = StageLimits(start_s=60, check_s=1, time_s=1)
BASELINES = Baselines(
    default="slow",
    routines=(
        BaselineTiming(routine="slow", timing=measured(20), preparation_ms=0),
        BaselineTiming(routine="library", timing=measured(10), preparation_ms=0),
    ),
)


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1, timeout_s=120) as compiler:
        yield compiler


@pytest.fixture(scope="module")
def process() -> Iterator[DeviceProcess]:
    process = DeviceProcess(MisbehavingFactory(), LIMITS, spares=SpareLimits(most=4))
    yield process
    process.close()


def make_job(*behaviours: str, budget_s: float = 60) -> EvaluationJob:
    candidates = tuple(
        make_candidate(program_text(behaviour), f"candidate-{position}")
        for position, behaviour in enumerate(behaviours)
    )
    return EvaluationJob(
        job_id="job", workload=make_workload(make_pattern(20, 20, 0.2)), candidates=candidates, budget_s=budget_s
    )


def grade(
    job: EvaluationJob,
    process: DeviceProcess,
    compiler: Compiler,
    *,
    stop_after: int | None = None,
    others_wait: bool = False,
    inspections: Inspections = UNINSPECTED,
) -> EvaluationReport:
    problem = Problem(job.workload, make_pattern(20, 20, 0.2))
    workbench = process.open(problem)
    asked: list[None] = []

    def must_stop() -> bool:
        asked.append(None)
        return stop_after is not None and len(asked) > stop_after

    with CompilationsAhead(compiler, "sm_90", 20) as ahead:
        allowance = allowance_of(job, 0, must_stop, lambda: others_wait)
        distinct = {each.program: Filled(each) for each in job.candidates}
        parsed = ahead.start(parse_candidates(distinct.values(), problem))
        return grade_batch(job, parsed, problem, Means(workbench, ahead, inspections, Stages()), BASELINES, allowance)


def outcomes(report: EvaluationReport) -> list[str]:
    return [evaluation.outcome.outcome for evaluation in report.evaluations]


def test_a_candidate_that_kills_the_device_changes_nothing_for_the_others(
    process: DeviceProcess, compiler: Compiler
) -> None:
    report = grade(make_job("right 5", "die", "right 6", "hang", "wrong", "right 7"), process, compiler)
    assert outcomes(report) == ["passed", "crashed", "passed", "timed_out", "mismatch", "passed"]


def at_length(median_us: float) -> MeasuredTiming:
    return measured(median_us).model_copy(update={"is_final": True})


def timed_at_length(report: EvaluationReport) -> list[bool]:
    timings = [each.outcome.timing for each in report.evaluations if isinstance(each.outcome, Passed)]
    return [isinstance(timing, MeasuredTiming) and timing.is_final for timing in timings]


def test_what_is_clearly_slower_than_the_best_of_the_search_is_not_timed_at_length(
    process: DeviceProcess, compiler: Compiler
) -> None:
    job = make_job("right 5", "right 5.1", "right 6")
    assert timed_at_length(grade(job, process, compiler)) == [True, True, False]
    for best_us, at_length in ((4.9, [True, True, False]), (4.75, [True, False, False]), (3.0, [False, False, False])):
        report = grade(job.model_copy(update={"best_us": best_us}), process, compiler)
        assert timed_at_length(report) == at_length, best_us


def test_evaluations_come_in_the_order_of_the_candidates_and_equal_texts_share_an_outcome(
    process: DeviceProcess, compiler: Compiler
) -> None:
    job = make_job("right 5", "wrong", "right 5")
    report = grade(job, process, compiler)
    assert tuple(evaluation.candidate for evaluation in report.evaluations) == job.candidates
    assert report.evaluations[0].outcome == report.evaluations[2].outcome


def test_a_passed_kernel_carries_timing_resources_format_and_error(process: DeviceProcess, compiler: Compiler) -> None:
    job = make_job("right 5")
    report = grade(job, process, compiler)
    passed = report.evaluations[0].outcome
    assert isinstance(passed, Passed)
    assert (passed.timing, passed.storage_format, passed.num_inputs) == (at_length(5), "csr", 5)
    assert passed.resources.registers > 0
    nnz = make_pattern(20, 20, 0.2).nnz
    assert passed.format_bytes == report.csr_bytes == 4 * 21 + 8 * nnz
    assert 0 < passed.worst_error < 1e-6


class Asked:
    """Inspections that note what is asked of them."""

    def __init__(self) -> None:
        self.programs: list[str] = []
        self.patience_s: list[float] = []

    def ask(self, key: str, program: KernelProgram, binary: Compiled) -> None:
        self.programs.append(key)

    def found(self, most_s: float) -> dict[str, Found]:
        self.patience_s.append(most_s)
        return {}

    def close(self) -> None:
        """Nothing is under way."""


def test_what_a_user_wrote_is_inspected_and_of_the_fastest_what_no_family_wrote(
    process: DeviceProcess, compiler: Compiler
) -> None:
    job = make_job("right 5", "right 5.1", "right 5.2", "right 30", "wrong")
    origins = (FromFamily(family="rows", parameters={}), *[MUTATED] * 4)
    by_machine = job.model_copy(
        update={
            "candidates": tuple(
                each.model_copy(update={"origin": origin}) for each, origin in zip(job.candidates, origins, strict=True)
            )
        }
    )
    of_user, of_search = Asked(), Asked()
    grade(job, process, compiler, inspections=of_user)
    grade(by_machine, process, compiler, inspections=of_search)
    texts = [each.program for each in job.candidates]
    assert set(of_user.programs) == set(texts[:4])
    assert of_search.programs == [texts[1]]
    assert (of_user.patience_s, of_search.patience_s) == ([PATIENCE_S], [SHORT_PATIENCE_S])


def test_finalists_are_timed_again_with_the_best_baseline_and_both_times_are_reported(
    process: DeviceProcess, compiler: Compiler
) -> None:
    report = grade(make_job("right 5", "right 30"), process, compiler)
    assert report.baselines.best_routine() == BaselineTiming(routine="library", timing=measured(9), preparation_ms=0)
    assert report.baselines.default_routine().timing == measured(20)


def test_candidates_beyond_the_budget_are_timed_out_by_the_job(process: DeviceProcess, compiler: Compiler) -> None:
    job = make_job("right 5", "right 6", budget_s=1e-6)
    report = grade(job, process, compiler)
    assert [evaluation.outcome for evaluation in report.evaluations] == [unreached(allowance_of(job, 9, bool))] * 2


def test_where_others_wait_a_job_ends_with_its_turn_and_says_what_it_did_not_reach(
    process: DeviceProcess, compiler: Compiler
) -> None:
    job = make_job("right 5", "right 6", "right 7").model_copy(update={"turn_s": 1e-6})
    report = grade(job, process, compiler, others_wait=True)
    assert sorted(outcomes(report)) == ["passed", "timed_out", "timed_out"]
    (message,) = {each.outcome.message for each in report.evaluations if isinstance(each.outcome, TimedOut)}
    assert message == "other jobs had their turn, after 1e-06 s, before this candidate was reached"
    assert outcomes(grade(job, process, compiler)) == ["passed"] * 3, "alone it goes on"


def test_a_stage_ends_soon_after_the_budget_and_its_process_with_it(compiler: Compiler) -> None:
    process = DeviceProcess(MisbehavingFactory(hold_s=30), LIMITS)
    job = make_job("right 5", budget_s=1.5)
    try:
        process.start()
        began = time.monotonic()
        workbench = process.open(Problem(job.workload, make_pattern(20, 20, 0.2)), allowance_of(job, 0, bool))
        with pytest.raises(BudgetSpent, match=r"of 1\.5 s was spent before anything was graded, in stage 'draw'"):
            workbench.draw()
        assert time.monotonic() - began < 10  # seconds, of the 30 that it takes
        assert not process.is_running()
    finally:
        process.close()


def test_a_stage_of_a_job_that_is_cancelled_ends_and_its_process_with_it(compiler: Compiler) -> None:
    process = DeviceProcess(MisbehavingFactory(hold_s=30), LIMITS)
    job = make_job("right 5")
    cancelled = threading.Event()
    try:
        process.start()
        workbench = process.open(
            Problem(job.workload, make_pattern(20, 20, 0.2)), allowance_of(job, 0, cancelled.is_set)
        )
        threading.Timer(0.5, cancelled.set).start()
        began = time.monotonic()
        with pytest.raises(Stopped, match="stopped while draw was under way"):
            workbench.draw()
        assert time.monotonic() - began < 10  # seconds, of the 30 that it takes
        assert not process.is_running()
    finally:
        process.close()


def test_a_brief_stage_that_began_in_time_is_let_end(process: DeviceProcess) -> None:
    allowance = Allowance(1, time.monotonic() + 0.2)
    workbench = process.open(Problem(make_job("right").workload, make_pattern(20, 20, 0.2)), allowance)
    process.start()
    child = process.num_started
    workbench.draw()
    time.sleep(0.3)
    with pytest.raises(BudgetSpent):
        workbench.build_ahead([], 1)
    assert process.is_running()
    assert process.num_started == child


def test_what_a_job_waited_counts_where_its_sender_waits_no_longer() -> None:
    job = make_job("right", budget_s=60)
    assert 59 < allowance_of(job, 50, bool).left_s <= 60
    impatient = job.model_copy(update={"patience_s": 60})
    assert 9 < allowance_of(impatient, 50, bool).left_s <= 10
    assert 0 < allowance_of(impatient, 500, bool).left_s <= 1


def test_a_worker_that_must_stop_gives_the_job_back(process: DeviceProcess, compiler: Compiler) -> None:
    with pytest.raises(Stopped, match="given back after 1 candidates"):
        grade(make_job("right 5", "right 6"), process, compiler, stop_after=1)


class TimedWorkbench:
    """A workbench where every kernel passes with the time its id says; it notes what it vouches for and unloads."""

    def __init__(self) -> None:
        self.unloaded: list[str] = []
        self.vouched: list[str] = []

    def description(self) -> DeviceDescription:
        raise NotImplementedError

    def baselines(self) -> Baselines:
        return BASELINES

    def draw(self) -> None:
        pass

    def build(self, program: KernelProgram) -> Built | Rejected | RunFailure:
        return Built(1, 1.0)

    def build_first(self, program: KernelProgram) -> Built | Rejected | RunFailure:
        raise NotImplementedError

    def build_ahead(self, programs: Sequence[KernelProgram], limit_s: float) -> None:
        pass

    def check(self, kernel_id: str, program: KernelProgram, binary: Compiled) -> Correct | Rejected | RunFailure:
        return Correct(0.0, 5)

    def time(self, kernel_id: str, vouched_to_us: float = math.inf) -> Timing | RunFailure:
        timing = measured(float(kernel_id))
        if timing.median_us <= vouched_to_us:
            self.vouched.append(kernel_id)
        return timing

    def time_adverse(self, kernel_id: str) -> AdverseTiming | RunFailure | None:
        return None

    def retime(self, kernel_ids: Sequence[str], routine: str) -> FinalTimes | RunFailure:
        raise NotImplementedError

    def draw_first(self) -> None:
        pass

    def check_first(self, program: KernelProgram, binary: Compiled) -> Correct | Rejected | RunFailure:
        raise NotImplementedError

    def repeat(self, program: KernelProgram, binary: Compiled) -> Repeats | Rejected | RunFailure:
        raise NotImplementedError

    def profile(self, kernel_id: str, program: KernelProgram, binary: Compiled) -> tuple[LaunchProfile, ...]:
        raise NotImplementedError

    def unload(self, kernel_id: str) -> None:
        self.unloaded.append(kernel_id)


def test_only_kernels_near_the_best_so_far_stay_for_the_finals() -> None:
    workbench, race = TimedWorkbench(), Race(baseline_us=10)
    for kernel_id in ("30", "10.7", "8", "8.4", "8.7", "20"):
        race.time(kernel_id, workbench)
    assert workbench.unloaded == ["30", "10.7", "8.7", "20"]
    assert race.finalists == ("8", "8.4")


@given(st.lists(st.floats(1, 100), min_size=1, max_size=40, unique=True), st.floats(1, 100))
def test_whoever_comes_to_the_finals_was_vouched_for_and_whoever_is_paid_always(
    times_us: list[float], baseline_us: float
) -> None:
    workbench, race = TimedWorkbench(), Race(baseline_us)
    for us in times_us:
        race.time(str(us), workbench, is_paid=False)
    assert set(race.finalists) <= set(workbench.vouched)
    workbench, race = TimedWorkbench(), Race(baseline_us)
    for us in times_us:
        race.time(str(us), workbench)
    assert workbench.vouched == [str(us) for us in times_us]


def test_what_is_out_of_the_race_and_paid_by_nobody_is_spared_its_replays() -> None:
    workbench, race = TimedWorkbench(), Race(baseline_us=10)
    for kernel_id in ("30", "10.7", "8", "8.4", "8.7", "20"):
        race.time(kernel_id, workbench, is_paid=False)
    assert workbench.vouched == ["8", "8.4"]


@pytest.mark.parametrize(
    ("origin", "paid"), [(FromFamily(family="csr_vector", parameters={}), False), (UserWritten(), True)]
)
def test_a_family_is_paid_for_its_fastest_alone(origin: FromFamily | UserWritten, paid: bool) -> None:
    assert is_paid(Candidate(candidate_id="c", program="none", origin=origin)) is paid


def test_the_race_keeps_the_fastest_few_loaded() -> None:
    workbench, race = TimedWorkbench(), Race(baseline_us=100)
    for number in range(10, 10 + 2 * MAX_FINALISTS):
        race.time(str(110 - number), workbench)
    assert len(race.finalists) == MAX_FINALISTS
    assert len(workbench.unloaded) == MAX_FINALISTS


def test_the_resources_are_those_of_the_heaviest_kernel() -> None:
    binary = Compiled(
        ptx="",
        cubin=b"",
        log="",
        resources={"clear": KernelResources(8, 0, 0, 64, 0, 0), "spmv": KernelResources(40, 0, 0, 16, 0, 0)},
        compile_ms=75,
        facts=NO_FACTS,
    )
    assert heaviest_kernel(binary) == Resources(registers=40, spill_bytes=0, shared_bytes=16, compile_ms=75)
