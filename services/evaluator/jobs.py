"""The evaluator's entry: one job in, one report out, rewards on the stream.

RQ calls `grade` by its name; what it grades with is installed by `__main__`, once a process. A job that is given to a
second worker is graded again; its records have the same ids, so the trainer uses each once.
"""

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Protocol

from pydantic_core import from_json

from services.evaluator.allowance import Stopped, allowance_of, allowance_of_instant
from services.evaluator.candidates import Parsed, fill_numbers, parse_candidates
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.grading import Means, Outcomes, grade_batch, was_reached
from services.evaluator.handing_out import hand_out
from services.evaluator.inspection import Inspections, NoInspections
from services.evaluator.isolation.child import DeviceDoesNotStart
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.known_routines import KnownRoutines
from services.evaluator.known_times import KnownTimes, rival_of
from services.evaluator.memory_errors import UNWATCHED, MemoryWatch
from services.evaluator.remembered import remembered
from services.evaluator.sanitizing.winners import Batch, WinnersGate
from services.evaluator.stages import Stages
from sparsesmith.errors import SparsesmithError, Unavailable
from sparsesmith.operations import Problem
from sparsesmith.reward import rewards, standard_of
from sparsesmith.transport.accounts import Accounts
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.stream import RewardStream
from sparsesmith.transport.traces import NO_TRACES, Traces, span
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport, InstantJob, InstantReport
from sparsesmith_proto.kernel import (
    Candidate,
    Evaluation,
    Passed,
    ProbeWritten,
    Sampled,
    Timing,
    Workload,
)
from sparsesmith_proto.message import Message
from sparsesmith_proto.reward import RewardRecord

log = logging.getLogger(__name__)

Origins = tuple[type[Message], ...]
"""Kinds of writers of candidates."""

MAX_IDENTIFIER_CHARACTERS = 128
MAX_SEARCHES = 8
"""Whose graded texts are remembered; the least recently used go first."""


class Matrices(Protocol):
    """Where a grader finds the matrices of its jobs: `sparsesmith.transport.pattern_store.PatternStore`."""

    def problem(self, workload: Workload) -> Problem:
        """Raises NotFound."""
        ...


class Grader:
    """A device and a compiler, and what it knows of workloads."""

    def __init__(
        self,
        process: DeviceProcess,
        compiler: Compiler,
        *,
        inspections: Callable[[Problem], Inspections] = lambda problem: NoInspections(),
        routines: KnownRoutines | None = None,
        must_stop: Callable[[], bool] = lambda: False,
        others_wait: Callable[[], bool] = lambda: False,
        waited_s: Callable[[], float] = lambda: 0.0,
        retire: Callable[[], None] = lambda: None,
    ) -> None:
        """`inspections`: who looks at what passes once more. Of the worker: `must_stop` says whether the job in hand
        should end now, `others_wait` whether there are more, `waited_s` how long the job in hand was in the queue;
        `retire` is called when the device does not start any more: the worker should end, the job go elsewhere."""
        self._process = process
        self._compiler = compiler
        self._inspections = inspections
        self._routines = KnownRoutines() if routines is None else routines
        self._must_stop = must_stop
        self._others_wait = others_wait
        self._waited_s = waited_s
        self._retire = retire
        self._gate: WinnersGate | None = None
        self._known: OrderedDict[str, Outcomes] = OrderedDict()
        """What became of texts, by search."""

    def look_last(self, gate: WinnersGate) -> None:
        """Has a gate look at what would win a search."""
        self._gate = gate

    def grade(self, job: EvaluationJob, patterns: Matrices) -> EvaluationReport:
        """Everything counts against the job's budget but the start of the device.

        Raises NotFound for an unknown pattern, LimitExceeded beyond the device or the budget, Unavailable without a
        device.
        """
        self._started()
        allowance = allowance_of(job, self._waited_s(), self._must_stop, self._others_wait)
        stages = Stages(allowance.waits)
        with stages.of("load"):
            problem = patterns.problem(job.workload)
        device = self._process.description()
        filled = fill_numbers(job.candidates, problem, device.num_sms)
        job = job.model_copy(update={"candidates": tuple(each.candidate for each in filled)})
        try:
            with (
                closing(self._inspections(problem)) as inspections,
                CompilationsAhead(self._compiler, device.architecture, self._compiler.timeout_s) as ahead,
                ThreadPoolExecutor(1) as reader,
            ):
                known = self._known_of(job)
                new = {each.candidate.program: each for each in filled if each.candidate.program not in known}
                # Reading the programs takes milliseconds each, and meanwhile the device has its own to do.
                reading = reader.submit(ahead.start, parse_candidates(new.values(), problem))
                workbench = self._process.open(problem, allowance)
                with stages.of("open"):
                    workbench.begin()
                with stages.of("baselines"):
                    baselines = self._routines.of(job.workload, workbench)
                with stages.of("read"):
                    parsed = reading.result()
                means = Means(workbench, ahead, inspections, stages)
                report = grade_batch(job, parsed, problem, means, baselines, allowance, known)
                if self._gate is None or not may_win(job):
                    return report
                with self._process.turn():
                    return self._gate.judged(report, Batch(problem, parsed, ahead.result, known, allowance))
        except DeviceDoesNotStart:
            self._retire()
            raise
        except (SparsesmithError, Stopped):
            raise
        except BaseException:
            # The job's time ran out or the worker is told to stop, perhaps in the middle of a message to the child.
            self._process.close()
            raise

    def hand_out(self, job: InstantJob, patterns: Matrices) -> InstantReport:
        """Checks one program once. Raises as `grade` does."""
        self._started()
        allowance, device = allowance_of_instant(job, self._must_stop), self._process.description()
        stages = Stages(allowance.waits)
        with stages.of("load"):
            problem = patterns.problem(job.workload)
        try:
            with (
                CompilationsAhead(self._compiler, device.architecture, self._compiler.timeout_s) as ahead,
                ThreadPoolExecutor(1) as reader,
            ):
                # The compiler works on the text while the pattern is on its way to the device.
                reading = reader.submit(_read_one, job.candidate, problem, device.num_sms, ahead, stages)
                workbench = self._process.open(problem, allowance)
                with stages.of("upload"):
                    workbench.begin()
                with stages.of("read_wait"):
                    parsed = reading.result()
                outcome = hand_out(parsed, ahead, workbench, stages)
        except DeviceDoesNotStart:
            self._retire()
            raise
        except (SparsesmithError, Stopped):
            raise
        except BaseException:
            self._process.close()
            raise
        return InstantReport(
            job_id=job.job_id,
            device=device,
            candidate=parsed.candidate,
            outcome=outcome,
            stages_ms=stages.ms,
            seconds=stages.seconds,
        )

    def _known_of(self, job: EvaluationJob) -> Outcomes:
        """What earlier jobs of the same search found; with its workload, whose texts they are."""
        if job.search is None:
            return {}
        key = f"{job.search} {job.workload.model_dump_json()}"
        return remembered(self._known, key, dict, MAX_SEARCHES)

    def _started(self) -> None:
        try:
            self._process.start()
        except DeviceDoesNotStart:
            self._retire()
            raise


def _read_one(candidate: Candidate, problem: Problem, num_sms: int, ahead: CompilationsAhead, stages: Stages) -> Parsed:
    """With its numbers filled in; its compilation has begun."""
    with stages.of("read"):
        (parsed,) = ahead.start(parse_candidates(fill_numbers([candidate], problem, num_sms), problem))
    return parsed


def may_win(job: EvaluationJob) -> bool:
    """Whether somebody may be handed one of its programs: not where one is listed again or a policy is probed."""
    return not job.listings and not isinstance(job.candidates[0].origin, ProbeWritten)


def job_of(text: str) -> EvaluationJob | InstantJob:
    """By its `kind`. Raises ValidationError, which says of a job without one what is wrong with an EvaluationJob."""
    try:
        fields = from_json(text)
    except ValueError:
        fields = None
    if isinstance(fields, dict) and fields.get("kind") == "instant":
        return InstantJob.model_validate_json(text)
    return EvaluationJob.model_validate_json(text)


class GradingService:
    """A grader with its channels."""

    def __init__(
        self,
        grader: Grader,
        patterns: PatternStore,
        stream: RewardStream,
        accounts: Accounts,
        on_report: Callable[[EvaluationReport, float], None] = lambda report, seconds: None,
        memory: MemoryWatch = UNWATCHED,
        told_of: Origins = (),
        traces: Traces = NO_TRACES,
    ) -> None:
        """`on_report` is told of each report and of the seconds that its job took, the workload's opening and baselines
        among them. `told_of`: origins beside the policy's whose programs are recorded where they passed."""
        self._told_of = told_of
        self._traces = traces
        self._grader = grader
        self._memory = memory
        self._patterns = patterns
        self._stream = stream
        self._accounts = accounts
        self._on_report = on_report
        self._known = KnownTimes()

    def grade(self, job: EvaluationJob) -> EvaluationReport:
        """Grades a job and publishes what the trainer learns from. The time it took is charged to the key that asked
        for it, also where it came to nothing. Raises MemoryFaulty, with nothing published, beside what the grader does.
        """
        began = time.monotonic()
        try:
            with span(self._traces, "grade", job.job_id) as told, self._memory.over(job.job_id):
                report = self._grader.grade(job, self._patterns)
                told.update({"device": report.device.name, "candidates": len(report.evaluations)})
        finally:
            seconds = time.monotonic() - began
            self._charge(job.job_id, seconds)
        self._on_report(report, seconds)
        for record in reward_records(job, report, self._known.rival(job, report), self._told_of):
            with span(self._traces, "reward", job.job_id) as told:
                told.update({"record": record.record_id, "outcome": record.outcome.outcome})
                self._stream.publish(record)
        self._known.take_in(job, report)
        return report

    def hand_out(self, job: InstantJob) -> InstantReport:
        """Checks the program of a job once; nobody learns from it, as it is graded in full later."""
        with span(self._traces, "hand out", job.job_id), self._memory.over(job.job_id):
            report = self._grader.hand_out(job, self._patterns)
        self._charge(job.job_id, report.seconds)
        return report

    def _charge(self, job_id: str, seconds: float) -> None:
        """An answer is worth more than its place in an account."""
        try:
            self._accounts.charge_seconds(job_id, seconds)
        except Unavailable as error:
            log.warning("%.1f s of job %s are charged to nobody: %s", seconds, job_id, error)


def reward_records(
    job: EvaluationJob, report: EvaluationReport, known: Timing, told_of: Origins = ()
) -> list[RewardRecord]:
    """One record for each candidate that the policy wrote and that was reached, at the first values of its knobs: what
    a tuner found beyond them is not the sample's.

    `known`: the best time that was known of the workload. `told_of`: also of programs of these origins, where they
    passed; nobody learns from a user's own program.

    None for fixed values: the policy does not see them and must not learn that they can be left out. None where equal
    bits are promised or the result is scaled: it does not see that either.
    """
    if job.workload.values is not None or job.workload.deterministic or job.workload.alpha_beta:
        return []
    return [
        _record(job, evaluation, report, rival_of(evaluation.candidate, report, known))
        for evaluation in report.evaluations
        if _teaches(evaluation, told_of) and not evaluation.candidate.settings and was_reached(evaluation.outcome)
    ]


def _teaches(evaluation: Evaluation, told_of: Origins) -> bool:
    origin = evaluation.candidate.origin
    return isinstance(origin, Sampled) or (isinstance(origin, told_of) and isinstance(evaluation.outcome, Passed))


def _record(job: EvaluationJob, evaluation: Evaluation, report: EvaluationReport, rival: Timing) -> RewardRecord:
    standard = standard_of(report.baselines, report.csr_bytes, rival)
    return RewardRecord(
        record_id=record_id(job.job_id, evaluation.candidate.candidate_id),
        workload=job.workload,
        candidate=evaluation.candidate,
        outcome=evaluation.outcome,
        best_baseline_us=standard.best_us,
        default_baseline_us=standard.default_us,
        rewards=rewards(evaluation.outcome, standard),
        rival_us=rival.median_us,
        device=report.device,
    )


def record_id(job_id: str, candidate_id: str) -> str:
    """`<job_id>:<candidate_id>`, or its SHA-256 where that is longer than an identifier may be."""
    joined = f"{job_id}:{candidate_id}"
    return joined if len(joined) <= MAX_IDENTIFIER_CHARACTERS else hashlib.sha256(joined.encode()).hexdigest()


class NotInstalled(Exception):
    """A job came to a process that `__main__` did not set up."""


_installed: list[GradingService] = []


def install(service: GradingService) -> None:
    """Makes this process grade with a service, in place of the one before."""
    _installed[:] = [service]


def grade(job_json: str) -> str:
    """RQ's entry: an EvaluationJob or an InstantJob as JSON to its report as JSON."""
    if not _installed:
        raise NotInstalled("this process is not an evaluator: start it with python -m services.evaluator")
    match job_of(job_json):
        case EvaluationJob() as job:
            return _installed[0].grade(job).model_dump_json()
        case InstantJob() as job:
            return _installed[0].hand_out(job).model_dump_json()
