"""What was found, put plainly: a kernel that beats the library by more than the noise, or the library's own routine."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import assert_never

from services.generator.task import TuningTask
from sparsesmith_proto.api import (
    Answer,
    BreakEven,
    InstantKernel,
    KernelReport,
    LibraryAnswer,
    Running,
    SearchReport,
    SourceReport,
    TunedAnswer,
)
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import (
    Baselines,
    BaselineTiming,
    CompileFailed,
    Crashed,
    DeviceDescription,
    EstimatedTiming,
    Evaluation,
    MeasuredTiming,
    Mismatch,
    Mutated,
    Outcome,
    Passed,
    Rejected,
    Sampled,
    TimedOut,
    Timing,
)

MIN_SPEEDUP = 1.02
"""A kernel must be this much faster than the best baseline to be recommended over it."""

CHANGE_MARGIN = 1.005
"""A program that mutators changed must be this much faster than one that they did not."""


@dataclass(frozen=True)
class Contender:
    """A candidate that passed, with the baselines and the device that it was timed beside."""

    evaluation: Evaluation
    passed: Passed
    baselines: Baselines
    device: DeviceDescription

    @property
    def speedup_over_best(self) -> float:
        return self.baselines.best_routine().timing.median_us / self.passed.timing.median_us

    @property
    def speedup_over_default(self) -> float:
        return self.baselines.default_routine().timing.median_us / self.passed.timing.median_us

    @property
    def wins(self) -> bool:
        """Faster than the best baseline by more than the noise, as the same clock saw both."""
        return self.speedup_over_best >= MIN_SPEEDUP and is_below(
            self.passed.timing, self.baselines.best_routine().timing
        )

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Sure winners first, times of the finals before brief ones, then by speed."""
        is_brief, _ = self.passed.standing
        return self.wins, not is_brief, self.speedup_over_best

    @property
    def _is_changed(self) -> bool:
        return isinstance(self.evaluation.candidate.origin, Mutated)

    def is_ahead_of(self, other: "Contender") -> bool:
        """Whether it should be handed out instead. A change of a program by more than what the luckiest of many equal
        ones is ahead by chance."""
        wins, is_final, speedup = self.rank
        margin = CHANGE_MARGIN if self._is_changed and not other._is_changed else 1.0
        return (wins, is_final, speedup / margin) > other.rank


@dataclass
class Progress:
    """What is known of a task so far."""

    task: TuningTask
    num_graded: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    policy_versions: set[int] = field(default_factory=set)
    first_graded_s: float = 0.0
    last_report: EvaluationReport | None = None
    best: Contender | None = None
    instant: InstantKernel | None = None
    """What was handed out before the search."""

    def hand_out(self, kernel: InstantKernel) -> None:
        self.instant = kernel

    def add(self, report: EvaluationReport) -> None:
        if self.last_report is None:
            self.first_graded_s = self.task.tuning_s
        self.last_report = report
        for evaluation in report.evaluations:
            self._add(evaluation, report)

    def running(self) -> Running:
        best = self.best
        return Running(
            num_graded=self.num_graded,
            budget_candidates=self.task.order.options.budget.candidates,
            best_program=None if best is None else best.evaluation.candidate.program,
            best_us=None if best is None else best.passed.timing.median_us,
            best_speedup=None if best is None else best.speedup_over_best,
            instant=self.instant,
            so_far=None if self.instant is None or self.last_report is None else conclude(self),
        )

    def _add(self, evaluation: Evaluation, report: EvaluationReport) -> None:
        self.num_graded += 1
        self.outcomes[evaluation.outcome.outcome] += 1
        if self.instant is not None and evaluation.candidate.candidate_id == self.instant.candidate.candidate_id:
            self.instant = judged(self.instant, evaluation.outcome, report.baselines)
        origin = evaluation.candidate.origin
        if isinstance(origin, Sampled):
            self.policy_versions.update((origin.first_version, origin.last_version))
        if isinstance(evaluation.outcome, Passed) and evaluation.outcome.timing.median_us > 0:
            contender = Contender(evaluation, evaluation.outcome, report.baselines, report.device)
            if self.best is None or contender.is_ahead_of(self.best):
                self.best = contender


def judged(kernel: InstantKernel, outcome: Outcome, baselines: Baselines) -> InstantKernel:
    """A kernel that was handed out, and what the full protocol says of it."""
    match outcome:
        case Passed(timing=timing, conversion_ms=conversion_ms):
            even = _repaid(timing, conversion_ms, baselines, kernel.tuning_s)
            return kernel.model_copy(update={"state": "confirmed", "passed": outcome, "break_even": even})
        case TimedOut(stage="turn"):
            return kernel
        case CompileFailed(log=reason) | TimedOut(message=reason):
            return _withdrawn(kernel, outcome, reason)
        case Rejected(message=reason) | Mismatch(message=reason) | Crashed(message=reason):
            return _withdrawn(kernel, outcome, reason)
        case _:
            assert_never(outcome)


def _withdrawn(kernel: InstantKernel, outcome: Outcome, reason: str) -> InstantKernel:
    because = f"{outcome.outcome.replace('_', ' ')}: {reason}"
    return kernel.model_copy(update={"state": "withdrawn", "withdrawn_because": because})


def is_below(timing: Timing, other: Timing) -> bool:
    """Whether a time is lower beyond doubt: by the confidence intervals where measured. Kinds are never mixed."""
    match timing, other:
        case MeasuredTiming(high_us=high_us), MeasuredTiming(low_us=low_us):
            return high_us < low_us
        case EstimatedTiming(median_us=one_us), EstimatedTiming(median_us=other_us):
            return one_us < other_us
        case _:
            return False


def conclude(progress: Progress, sources: tuple[SourceReport, ...] = ()) -> KernelReport:
    """The whole answer, with what each source of candidates brought. At least one report must have been added."""
    report, task, best = progress.last_report, progress.task, progress.best
    matrix = task.problem.matrix
    assert report is not None, "a search without a report has no answer"
    return KernelReport(
        workload=task.order.workload,
        num_rows=None if matrix is None else matrix.num_rows,
        num_cols=None if matrix is None else matrix.num_cols,
        nnz=None if matrix is None else matrix.nnz,
        answer=_answer(progress, report),
        baselines=report.baselines if best is None else best.baselines,
        device=report.device if best is None else best.device,
        search=SearchReport(
            strategy=task.order.options.search,
            num_candidates=progress.num_graded,
            outcomes=dict(sorted(progress.outcomes.items())),
            policy_versions=tuple(sorted(progress.policy_versions)),
            seconds=task.elapsed_s,
            first_graded_s=progress.first_graded_s,
            sources=sources,
        ),
        instant=progress.instant,
    )


def break_even(contender: Contender, tuning_s: float, instant: InstantKernel | None = None) -> BreakEven:
    """Products after which tuning and conversion are repaid, given what the library's own preparation costs; behind an
    instant kernel also against going on with that one, for what the search took beyond it."""
    passed = contender.passed
    even = _repaid(passed.timing, passed.conversion_ms, contender.baselines, tuning_s)
    if instant is None or instant.passed is None:
        return even
    cost_us = (tuning_s - instant.tuning_s) * 1e6 + passed.conversion_ms * 1e3
    products = _products_at(cost_us, passed.timing, instant.passed.timing)
    return even.model_copy(update={"products_against_instant": products})


def library_break_even(baselines: Baselines, tuning_s: float) -> BreakEven:
    """The same of the best routine: the search that found it is paid by what it saves over the default."""
    best = baselines.best_routine()
    return _repaid(best.timing, best.preparation_ms, baselines, tuning_s)


def _repaid(timing: Timing, conversion_ms: float, baselines: Baselines, tuning_s: float) -> BreakEven:
    cost_us = tuning_s * 1e6 + conversion_ms * 1e3
    return BreakEven(
        kind=timing.kind,
        conversion_ms=conversion_ms,
        tuning_s=tuning_s,
        products_against_best=_products(cost_us, timing, baselines.best_routine()),
        products_against_default=_products(cost_us, timing, baselines.default_routine()),
    )


def _products(cost_us: float, timing: Timing, routine: BaselineTiming) -> int | None:
    """None: never. Times of two kinds have no difference that could repay anything."""
    return _products_at(cost_us - routine.preparation_ms * 1e3, timing, routine.timing)


def _products_at(cost_us: float, timing: Timing, other: Timing) -> int | None:
    gain_us = other.median_us - timing.median_us
    if gain_us <= 0 or other.kind != timing.kind:
        return None
    return max(0, math.ceil(cost_us / gain_us))


def _answer(progress: Progress, report: EvaluationReport) -> Answer:
    best = progress.best
    if best is not None and best.wins:
        return TunedAnswer(
            best=best.evaluation,
            speedup_over_best=best.speedup_over_best,
            speedup_over_default=best.speedup_over_default,
            break_even=break_even(best, progress.task.tuning_s, progress.instant),
        )
    baselines = report.baselines if best is None else best.baselines
    return LibraryAnswer(
        routine=baselines.best_routine().routine,
        reason=_reason(progress),
        closest=None if best is None else best.evaluation,
        break_even=library_break_even(baselines, progress.task.tuning_s),
    )


def _reason(progress: Progress) -> str:
    best = progress.best
    if best is None:
        return f"none of {progress.num_graded} candidates passed"
    routine = best.baselines.best_routine()
    compared = f"the best of {progress.num_graded} candidates takes {_described(best.passed.timing)}, "
    compared += f"{routine.routine} takes {_described(routine.timing)}"
    if (copied := best.baselines.best_on_a_copy()) not in (None, routine):
        compared += f" ({copied.routine} {_described(copied.timing)}, on a copy of A^T)"
    if best.speedup_over_best < MIN_SPEEDUP:
        return f"{compared}: {best.speedup_over_best:.2f}x, under the {MIN_SPEEDUP:g}x that make a difference"
    return f"{compared}: the intervals overlap, so the difference may be noise"


def _described(timing: Timing) -> str:
    match timing:
        case MeasuredTiming(median_us=median_us, low_us=low_us, high_us=high_us):
            return f"{median_us:.2f} us ({low_us:.2f} to {high_us:.2f})"
        case EstimatedTiming(median_us=median_us):
            return f"{median_us:.2f} us (estimated)"
        case _:
            assert_never(timing)
