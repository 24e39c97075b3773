"""A job's time on its evaluator: one budget for all stages, its turn, and whether it should go on at all."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from sparsesmith.errors import LimitExceeded
from sparsesmith_proto.evaluation import EvaluationJob, InstantJob

SHORTEST_S = 1.0
"""Of a job that waited in the queue for longer than its sender meant to."""


class BudgetSpent(LimitExceeded):
    """The job's time ended within a stage."""


class Stopped(Exception):
    """The worker was told to stop, or the job was cancelled; where it is still wanted it goes back to the queue."""


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Allowance:
    """From when the job was taken. Stages that are under way when it ends are stopped soon after."""

    budget_s: float
    ends: float
    """On time.monotonic's clock."""
    turn_s: float = math.inf
    """After so many seconds of grading it ends where others wait."""
    must_stop: Callable[[], bool] = _never
    others_wait: Callable[[], bool] = _never

    @property
    def left_s(self) -> float:
        return max(0.0, self.ends - time.monotonic())

    def turn_is_over(self, started: float) -> bool:
        """Of a batch whose grading began then, on time.monotonic's clock."""
        return time.monotonic() - started > self.turn_s and self.others_wait()

    def check(self, stage: str) -> None:
        """Raises BudgetSpent, Stopped."""
        if self.must_stop():
            raise Stopped(f"the job was stopped while {stage} was under way")
        if self.left_s == 0:
            raise BudgetSpent(
                f"the budget of {self.budget_s:.4g} s was spent before anything was graded, in stage {stage!r}: "
                "this workload needs more",
                field="budget.seconds",
                value=f"{self.budget_s:.4g}",
            )


UNHURRIED = Allowance(budget_s=math.inf, ends=math.inf)


def allowance_of_instant(job: InstantJob, must_stop: Callable[[], bool]) -> Allowance:
    """Of a kernel that is wanted at once, taken now."""
    return Allowance(job.budget_s, time.monotonic() + job.budget_s, must_stop=must_stop)


def allowance_of(
    job: EvaluationJob,
    waited_s: float,
    must_stop: Callable[[], bool],
    others_wait: Callable[[], bool] = _never,
) -> Allowance:
    """Of a job that is taken now, `waited_s` after it was submitted."""
    patience_s = math.inf if job.patience_s is None else max(SHORTEST_S, job.patience_s - waited_s)
    ends = time.monotonic() + min(job.budget_s, patience_s)
    return Allowance(job.budget_s, ends, math.inf if job.turn_s is None else job.turn_s, must_stop, others_wait)
