"""A job's time on its evaluator: one budget for all stages, its turn, and whether it should go on at all."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sparsesmith.errors import LimitExceeded
from sparsesmith_proto.evaluation import EvaluationJob, InstantJob

SHORTEST_S = 1.0
"""Of a job that waited in the queue for longer than its sender meant to."""

MOST_FORGIVEN_S = 240.0
"""Of a job's waits for a GPU that is shared: the queue gives a job up 300 s after its budget."""


class BudgetSpent(LimitExceeded):
    """The job's time ended within a stage."""


class Stopped(Exception):
    """The worker was told to stop, or the job was cancelled; where it is still wanted it goes back to the queue."""


def _never() -> bool:
    return False


@dataclass
class Waits:
    """How long a job's calls waited for a GPU that other evaluators use, too (`gpu_turn`)."""

    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass(frozen=True)
class Allowance:
    """From when the job was taken. Stages that are under way when it ends are stopped soon after.

    Its clock, `now`, stands still while a call waits for a shared GPU: others cost a job none of its budget.
    """

    budget_s: float
    ends: float
    """On its own clock."""
    turn_s: float = math.inf
    """After so many seconds of grading it ends where others wait."""
    must_stop: Callable[[], bool] = _never
    others_wait: Callable[[], bool] = _never
    forgiven_s: float = MOST_FORGIVEN_S
    """At most, of what it waits for a shared GPU: whoever sent it waits no longer for the report."""
    waits: Waits = field(default_factory=Waits)

    def now(self) -> float:
        """time.monotonic(), less the waits that are forgiven."""
        return time.monotonic() - min(self.waits.seconds, self.forgiven_s)

    def worked(self) -> float:
        """time.monotonic(), less all waits."""
        return time.monotonic() - self.waits.seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self.ends - self.now())

    def turn_is_over(self, started: float) -> bool:
        """Of a batch whose grading began then, as `worked` tells it."""
        return self.worked() - started > self.turn_s and self.others_wait()

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
    return Allowance(job.budget_s, time.monotonic() + job.budget_s, must_stop=must_stop, forgiven_s=0.0)


def allowance_of(
    job: EvaluationJob,
    waited_s: float,
    must_stop: Callable[[], bool],
    others_wait: Callable[[], bool] = _never,
) -> Allowance:
    """Of a job that is taken now, `waited_s` after it was submitted."""
    patience_s = math.inf if job.patience_s is None else max(SHORTEST_S, job.patience_s - waited_s)
    given_s = min(job.budget_s, patience_s)
    return Allowance(
        job.budget_s,
        time.monotonic() + given_s,
        math.inf if job.turn_s is None else job.turn_s,
        must_stop,
        others_wait,
        forgiven_s=min(MOST_FORGIVEN_S, patience_s - given_s),
    )
