"""A batch of candidates on one workload: compiled ahead, graded one by one, the front of the field timed again."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from services.evaluator.allowance import Allowance, BudgetSpent, Stopped
from services.evaluator.candidates import Parsed
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiled
from services.evaluator.device import Inspected, RunFailure, Timing
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.inspection import PATIENCE_S, SHORT_PATIENCE_S, Found, Inspections
from services.evaluator.isolation.workbench import FinalTimes, Workbench
from services.evaluator.race import Race
from services.evaluator.stages import Stages
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport, LaunchProfile, Profile
from sparsesmith_proto.kernel import (
    Baselines,
    Crashed,
    Evaluation,
    FromFamily,
    MeasuredTiming,
    Mismatch,
    Outcome,
    Passed,
    Repeats,
    TimedOut,
    UserWritten,
)

BUILD_AHEAD_SHARE = 0.25
"""Of a job's budget, for building formats on all cores before the first program is timed."""

FINALS_SHARE = 0.1
LONGEST_FINALS_S = 1.0
"""Kept back of a job's budget."""

INSPECTED_FINALISTS = 2
"""The fastest of a batch, unless a family wrote them; a user's own programs are inspected wherever they pass."""

Outcomes = dict[str, Outcome]
"""By program text: equal texts are graded once."""


@dataclass(frozen=True)
class Means:
    """What a batch is graded with."""

    workbench: Workbench
    ahead: CompilationsAhead
    inspections: Inspections
    stages: Stages

    def inspect(self, passed: Parsed) -> None:
        """Has a program that passed inspected, meanwhile."""
        self.inspections.ask(passed.candidate.program, *compiled(passed, self.ahead))


def grade_batch(
    job: EvaluationJob,
    candidates: Sequence[Parsed],
    problem: Problem,
    means: Means,
    baselines: Baselines,
    allowance: Allowance,
    known: Outcomes | None = None,
) -> EvaluationReport:
    """Grades the candidates of a job, whose candidate_ids are distinct, until its allowance or its turn is over.

    `candidates`: one for each text of the job that is not `known`, which are those graded for the same search; this
    job's are added.

    Raises LimitExceeded where the workload does not fit the device, Unavailable where the device does not come up,
    BudgetSpent where the inputs take all there is, Stopped.
    """
    workbench, ahead, stages = means.workbench, means.ahead, means.stages
    with stages.of("draw"):
        workbench.draw()
    started, began = allowance.worked(), time.monotonic()
    known = {} if known is None else known
    race = Race(min(baselines.best_routine().timing.median_us, job.best_us or math.inf))
    outcomes: Outcomes = {}
    profiles: dict[str, tuple[LaunchProfile, ...]] = {}
    with suppress(BudgetSpent):
        with stages.of("formats"):
            workbench.build_ahead(programs_of(candidates), BUILD_AHEAD_SHARE * allowance.left_s)
        for each in ahead.as_compiled(candidates, allowance.ends - finals_s(allowance), allowance.now):
            if allowance.must_stop():
                raise Stopped(f"job {job.job_id} was given back after {len(outcomes)} candidates")
            if outcomes and allowance.turn_is_over(started):
                break
            with stages.of("candidates"):
                outcome = outcomes[each.candidate.program] = evaluate_kernel(each, ahead.result, workbench, race)
            if isinstance(outcome, Passed) and isinstance(each.candidate.origin, UserWritten):
                means.inspect(each)
            if job.profiles and isinstance(outcome, Passed):
                profiles[each.candidate.program] = profile_of(each, workbench, ahead)
    inspect_finalists(race, means, candidates)
    with suppress(BudgetSpent), stages.of("finals"):  # The brief times stay.
        outcomes, baselines = run_finals(race, workbench, candidates, outcomes, baselines)
    with stages.of("inspections"):
        outcomes |= inspected(outcomes, means.inspections.found(min(patience_s(candidates), allowance.left_s)))
    if job.workload.deterministic:
        repeat_finalists(race, workbench, candidates, ahead, outcomes)
    known.update(outcomes)
    return EvaluationReport(
        job_id=job.job_id,
        device=workbench.description(),
        baselines=baselines,
        evaluations=tuple(
            Evaluation(candidate=candidate, outcome=known.get(candidate.program, unreached(allowance)))
            for candidate in job.candidates
        ),
        csr_bytes=problem.compared_bytes,
        seconds=time.monotonic() - began,
        stages_ms=stages.ms,
        listings=listings_of(candidates, ahead, known) if job.listings else {},
        profiles=tuple(
            Profile(candidate_id=candidate.candidate_id, launches=launches)
            for candidate in job.candidates
            if (launches := profiles.get(candidate.program))
        ),
    )


def inspect_finalists(race: Race, means: Means, candidates: Sequence[Parsed]) -> None:
    """Has the fastest inspected while they are timed at length; what families write was, in tests."""
    for each in finalists_of(race, candidates)[:INSPECTED_FINALISTS]:
        if not isinstance(each.candidate.origin, FromFamily):
            means.inspect(each)


def patience_s(candidates: Sequence[Parsed]) -> float:
    """A user waits for what is said of a program; a search and a policy go on."""
    is_asked = any(isinstance(each.candidate.origin, UserWritten) for each in candidates)
    return PATIENCE_S if is_asked else SHORT_PATIENCE_S


def inspected(outcomes: Outcomes, found: Mapping[str, Found]) -> Outcomes:
    """Of the programs that were inspected and passed: what is undefined has not passed."""
    changed: Outcomes = {}
    for text, inspection in found.items():
        before = outcomes[text]
        if isinstance(before, Passed):
            match inspection:
                case Inspected(num_blocks=num_blocks, of_blocks=of_blocks):
                    changed[text] = before.model_copy(update={"inspected": num_blocks / max(of_blocks, 1)})
                case Crashed() | Mismatch():
                    changed[text] = inspection
                case None:
                    pass
    return changed


def profile_of(passed: Parsed, workbench: Workbench, ahead: CompilationsAhead) -> tuple[LaunchProfile, ...]:
    """What the launches of a program that passed do with the device."""
    return workbench.profile(passed.candidate.candidate_id, *compiled(passed, ahead))


def compiled(passed: Parsed, ahead: CompilationsAhead) -> tuple[KernelProgram, Compiled]:
    """A program that passed, as it was read and compiled."""
    assert isinstance(passed.program, KernelProgram), "a program that passed was read"
    binary = ahead.result(passed.program)
    assert isinstance(binary, Compiled), "a program that passed was compiled"
    return passed.program, binary


def finalists_of(race: Race, candidates: Sequence[Parsed]) -> list[Parsed]:
    """The fastest first."""
    by_id = {each.candidate.candidate_id: each for each in candidates}
    return [by_id[kernel_id] for kernel_id in race.finalists]


def listings_of(candidates: Sequence[Parsed], ahead: CompilationsAhead, outcomes: Outcomes) -> dict[str, str]:
    """PTX of the candidates that passed, by candidate_id."""
    found = {}
    for each in candidates:
        if isinstance(each.program, KernelProgram) and isinstance(outcomes.get(each.candidate.program), Passed):
            binary = ahead.result(each.program)
            if isinstance(binary, Compiled):
                found[each.candidate.candidate_id] = binary.ptx
    return found


def finals_s(allowance: Allowance) -> float:
    """Kept back for the finals: without them the last batch could not win."""
    return min(LONGEST_FINALS_S, FINALS_SHARE * allowance.left_s)


def programs_of(candidates: Sequence[Parsed]) -> list[KernelProgram]:
    """Of the candidates whose text is a program."""
    return [each.program for each in candidates if isinstance(each.program, KernelProgram)]


def run_finals(
    race: Race, workbench: Workbench, candidates: Sequence[Parsed], outcomes: Outcomes, baselines: Baselines
) -> tuple[Outcomes, Baselines]:
    """Measured finalists and the best baseline timed again in turns: outcomes and baselines with those times.

    Estimated times have no drift and stay. A device that ends during the finals leaves the times as they were.
    """
    best = baselines.best_routine()
    if not race.finalists or not isinstance(best.timing, MeasuredTiming):
        return outcomes, baselines
    final = workbench.retime(race.finalists, best.routine)
    if not isinstance(final, FinalTimes):
        return outcomes, baselines
    programs = {each.candidate.candidate_id: each.candidate.program for each in candidates}
    retimed = {programs[kernel_id]: timing for kernel_id, timing in final.kernels.items()}
    routines = tuple(
        routine.model_copy(update={"timing": final.routine}) if routine == best else routine
        for routine in baselines.routines
    )
    return _with_final_times(outcomes, retimed), Baselines(default=baselines.default, routines=routines)


def repeat_finalists(
    race: Race, workbench: Workbench, candidates: Sequence[Parsed], ahead: CompilationsAhead, outcomes: Outcomes
) -> None:
    """Finalists that give the same bits in every context say so; the others have not passed. What the budget does not
    reach says what was seen of it before."""
    with suppress(BudgetSpent):
        for each in finalists_of(race, candidates):
            outcome = outcomes[each.candidate.program]
            if isinstance(outcome, Passed):
                outcomes[each.candidate.program] = _repeated(each, outcome, workbench, ahead)


def _repeated(each: Parsed, passed: Passed, workbench: Workbench, ahead: CompilationsAhead) -> Outcome:
    match workbench.repeat(*compiled(each, ahead)):
        case Repeats() as repeats:
            return passed.model_copy(update={"repeats": repeats})
        case failure:
            return failure


def _with_final_times(outcomes: Outcomes, retimed: Mapping[str, Timing | RunFailure]) -> Outcomes:
    changed = dict(outcomes)
    for program, final in retimed.items():
        before = outcomes[program]
        if isinstance(final, RunFailure):
            changed[program] = final
        elif isinstance(before, Passed):
            changed[program] = before.model_copy(update={"timing": final})
    return changed


def unreached(allowance: Allowance) -> TimedOut:
    """The outcome of a candidate that there was no time for: no fault of the candidate."""
    if allowance.left_s == 0 or math.isinf(allowance.turn_s):
        message = f"the job's budget of {allowance.budget_s:.4g} s was spent before this candidate was reached"
        return TimedOut(stage="turn", limit_s=allowance.budget_s, message=message)
    message = f"other jobs had their turn, after {allowance.turn_s:.4g} s, before this candidate was reached"
    return TimedOut(stage="turn", limit_s=allowance.turn_s, message=message)


def was_reached(outcome: Outcome) -> bool:
    match outcome:
        case TimedOut(stage="turn"):
            return False
        case _:
            return True
