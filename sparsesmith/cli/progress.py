"""A job's progress, in whatever the output is: a line that changes on a terminal, a line at each news elsewhere."""

import time
from types import TracebackType
from typing import Self, assert_never

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from sparsesmith.cli.visible import visible
from sparsesmith_proto.api import (
    Cancelled,
    Failed,
    Finished,
    Graded,
    InstantKernel,
    JobState,
    JobStatus,
    Queued,
    Running,
)

SIGN_OF_LIFE_S = 15.0
"""Where lines are printed, one comes this often though there is no news."""


class Progress:
    """Follows what goes on, with the seconds since it began; silent with `quiet`."""

    def __init__(self, console: Console, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet
        is_live = not quiet and console.is_terminal and not console.is_dumb_terminal
        self._line: Status | None = console.status("") if is_live else None
        self._began = time.monotonic()
        self._told = ""
        self._told_at = self._began

    def __enter__(self) -> Self:
        if self._line is not None:
            self._line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._line is not None:
            self._line.stop()

    def update(self, job: JobStatus) -> None:
        """Tell a job's state."""
        self.tell(describe(job.status))

    def tell(self, news: str) -> None:
        """To be called often: the same news is printed again only as a sign of life."""
        now = time.monotonic()
        line = f"[{now - self._began:4.0f} s] {visible(news)}"
        if self._line is not None:
            self._line.update(escape(line))
        elif not self._quiet and (news != self._told or now - self._told_at >= SIGN_OF_LIFE_S):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
            self._told, self._told_at = news, now


def describe(state: JobState) -> str:
    """The state in one line."""
    match state:
        case Queued(position=position):
            return f"queued, {position} ahead"
        case Running(num_graded=0, instant=InstantKernel(tuning_s=ready_s)):
            return f"a kernel is there after {1000 * ready_s:.0f} ms, checked once; the search goes on behind it"
        case Running(num_graded=0, budget_candidates=budget):
            return f"graded 0 of {budget} candidates; the routines that they are held against come first"
        case Running(num_graded=graded, budget_candidates=budget, best_us=None):
            return f"graded {graded} of {budget} candidates; none has passed yet"
        case Running(num_graded=graded, budget_candidates=budget, best_us=best, best_speedup=speedup):
            against = f", {speedup:.2f}x the best baseline" if speedup is not None else ""
            return f"graded {graded} of {budget} candidates; best so far {best:.2f} us{against}"
        case Finished() | Graded():
            return "finished"
        case Failed(problem=problem):
            return f"failed: {problem.detail}"
        case Cancelled():
            return "cancelled"
    assert_never(state)
