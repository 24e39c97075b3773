"""A batch of candidates on one workload: compiled ahead, graded one by one, the front of the field timed again."""

import time
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from services.evaluator.candidates import parse_candidate
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.device import RunFailure, Timing
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.isolation.workbench import FinalTimes, Workbench
from services.evaluator.race import Race
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import (
    Baselines,
    Candidate,
    Evaluation,
    MeasuredTiming,
    Outcome,
    Passed,
    TimedOut,
    Workload,
)

STORE_AHEAD_SHARE = 0.25
"""Of a job's budget, for building formats on all cores before the first program is timed."""

Outcomes = dict[str, Outcome]
"""By program text: equal texts are graded once."""


class Stopped(Exception):
    """The worker was told to stop; the job goes back to the queue."""


def grade_batch(
    job: EvaluationJob,
    pattern: Pattern,
    bench: Workbench,
    ahead: CompilationsAhead,
    baselines: Baselines,
    must_stop: Callable[[], bool],
) -> EvaluationReport:
    """Grades every candidate of a job, whose candidate_ids are distinct. `must_stop` is asked before each.

    The job's budget pays for its candidates: the inputs are drawn before the clock starts, while programs compile.
    Raises LimitExceeded where the workload does not fit the device, Unavailable where the device does not come up,
    Stopped.
    """
    bench.draw()
    started = time.monotonic()
    distinct = tuple({candidate.program: candidate for candidate in job.candidates}.values())
    bench.store_ahead(programs_of(distinct, job.workload), STORE_AHEAD_SHARE * job.budget_s)
    race = Race(baselines.best_routine().timing.median_us)
    outcomes: Outcomes = {}
    for candidate in ahead.as_compiled(distinct, job.workload, started + job.budget_s):
        if must_stop():
            raise Stopped(f"job {job.job_id} was given back after {len(outcomes)} candidates")
        outcomes[candidate.program] = evaluate_kernel(candidate, job.workload, ahead.result, bench, race)
    outcomes, baselines = run_finals(race, bench, distinct, outcomes, baselines)
    return EvaluationReport(
        job_id=job.job_id,
        device=bench.description(),
        baselines=baselines,
        evaluations=tuple(
            Evaluation(candidate=candidate, outcome=outcomes.get(candidate.program, unreached(job)))
            for candidate in job.candidates
        ),
        csr_bytes=csr_bytes(pattern, job.workload),
        seconds=time.monotonic() - started,
    )


def programs_of(candidates: Iterable[Candidate], workload: Workload) -> list[KernelProgram]:
    """Of the candidates whose text is a program."""
    parsed = (parse_candidate(candidate.program, workload) for candidate in candidates)
    return [program for program in parsed if isinstance(program, KernelProgram)]


def run_finals(
    race: Race, bench: Workbench, candidates: tuple[Candidate, ...], outcomes: Outcomes, baselines: Baselines
) -> tuple[Outcomes, Baselines]:
    """Measured finalists and the best baseline timed again in turns: outcomes and baselines with those times.

    Estimated times have no drift and stay. A device that ends during the finals leaves the times as they were.
    """
    best = baselines.best_routine()
    if not race.finalists or not isinstance(best.timing, MeasuredTiming):
        return outcomes, baselines
    final = bench.retime(race.finalists, best.routine)
    if not isinstance(final, FinalTimes):
        return outcomes, baselines
    programs = {candidate.candidate_id: candidate.program for candidate in candidates}
    retimed = {programs[kernel_id]: timing for kernel_id, timing in final.kernels.items()}
    routines = tuple(
        routine.model_copy(update={"timing": final.routine}) if routine == best else routine
        for routine in baselines.routines
    )
    return _with_final_times(outcomes, retimed), Baselines(default=baselines.default, routines=routines)


def csr_bytes(pattern: Pattern, workload: Workload) -> int:
    """Device memory of the matrix in CSR with 32-bit indices, values included."""
    return 4 * (pattern.num_rows + 1) + (4 + np.dtype(workload.element_type).itemsize) * pattern.nnz


def _with_final_times(outcomes: Outcomes, retimed: Mapping[str, Timing | RunFailure]) -> Outcomes:
    changed = dict(outcomes)
    for program, final in retimed.items():
        before = outcomes[program]
        if isinstance(final, RunFailure):
            changed[program] = final
        elif isinstance(before, Passed):
            changed[program] = before.model_copy(update={"timing": final})
    return changed


def unreached(job: EvaluationJob) -> TimedOut:
    """The outcome of a candidate that the job's budget left no time for: no fault of the candidate."""
    message = f"the job's budget of {job.budget_s:.4g} s was spent before this candidate was reached"
    return TimedOut(stage="run", limit_s=job.budget_s, message=message)
