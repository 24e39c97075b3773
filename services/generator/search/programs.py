"""A user's program: graded as it is, or, where it has knobs, at the settings that its own tuner asks for."""

import math
import time
from collections import Counter
from dataclasses import dataclass, field

from services.generator.orders import EvaluationOrder, order_knobs, work_a_candidate
from services.generator.search.grading import final_us
from services.generator.search.knobs import OpenProgram
from services.generator.search.standing import Batch
from sparsesmith.operations import Problem
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.numbers import num_settings
from sparsesmith_proto.api import EvaluationAnswer, KnobReport, Running
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Evaluation, Passed, UserWritten

BATCH = 12
"""Settings that are chosen together: small, as each batch is chosen by what those before it have shown."""


@dataclass(frozen=True)
class ProgramTask:
    """One run of an order to grade a program."""

    job_id: str
    run_id: str
    """Differs for each run of a job."""
    order: EvaluationOrder
    problem: Problem
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Since the start of this run."""
        return time.monotonic() - self.started

    @property
    def left_s(self) -> float:
        """Of the budget's seconds; negative once they are spent."""
        return self.order.budget.seconds - self.elapsed_s


class KnobSearch:
    """The tuner of one program's knobs, and what is known so far."""

    def __init__(self, task: ProgramTask) -> None:
        text, limit = extract_program(task.order.program), task.order.budget.candidates
        self._task = task
        self._knobs = order_knobs(task.order)
        self._program = OpenProgram(text, UserWritten(), task.problem, limit, "user")
        self._outcomes: Counter[str] = Counter()
        self._best: tuple[Evaluation, EvaluationReport] | None = None
        self.num_batches = 0

    def next_batch(self) -> Batch:
        """Empty: the budget is spent, or other settings are not worth their time."""
        if self.num_batches and self._task.left_s <= 0:
            return ()
        self.num_batches += 1
        return self._program.next_batch(BATCH)

    def add(self, report: EvaluationReport) -> None:
        for evaluation in report.evaluations:
            self._outcomes[evaluation.outcome.outcome] += 1
            self._program.tell(evaluation)
            if self._best is None or _rank(evaluation) < _rank(self._best[0]):
                self._best = evaluation, report

    def job(self, batch: Batch) -> EvaluationJob:
        """A batch, as evaluators take it."""
        left_s = max(1.0, self._task.left_s)
        return EvaluationJob(
            job_id=f"{self._task.run_id}-{self.num_batches}",
            workload=self._task.order.workload,
            candidates=batch,
            budget_s=left_s,
            search=self._task.run_id,
            best_us=None if self._best is None else final_us(self._best[0]),
            gpu=self._task.order.gpu,
            work=len(batch) * work_a_candidate(self._task.problem),
        )

    def running(self) -> Running:
        best, baseline_us = self._best, None
        if best is not None:
            baseline_us = best[1].baselines.best_routine().timing.median_us
        passed = best[0].outcome if best is not None and isinstance(best[0].outcome, Passed) else None
        best_us = None if passed is None else passed.timing.median_us
        return Running(
            num_graded=self._outcomes.total(),
            budget_candidates=min(self._task.order.budget.candidates, num_settings(self._knobs)),
            best_program=None if best is None or passed is None else best[0].candidate.program,
            best_us=best_us,
            best_speedup=baseline_us / best_us if baseline_us and best_us else None,
        )

    def answer(self) -> EvaluationAnswer:
        """At least one report must have been added."""
        assert self._best is not None, "a program that was not graded has no answer"
        report = KnobReport(
            num_settings=num_settings(self._knobs),
            num_listed=self._program.num_listed,
            num_graded=self._outcomes.total(),
            outcomes=dict(sorted(self._outcomes.items())),
            seconds=self._task.elapsed_s,
        )
        evaluation, graded = self._best
        return answer_of(self._task, graded, evaluation, report)


def _rank(evaluation: Evaluation) -> tuple[bool, bool, float]:
    """Sorts what passed before what did not; the first of those that did not pass stays."""
    match evaluation.outcome:
        case Passed() as passed:
            return False, *passed.standing
        case _:
            return True, True, math.inf


def answer_of(
    task: ProgramTask, report: EvaluationReport, evaluation: Evaluation, knobs: KnobReport | None
) -> EvaluationAnswer:
    """`knobs`: None where the program has none."""
    return EvaluationAnswer(
        workload=task.order.workload,
        evaluation=evaluation,
        baselines=report.baselines,
        device=report.device,
        knobs=knobs,
    )
