"""A job's progress on the terminal."""

from types import TracebackType
from typing import Self, assert_never

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from sparsesmith.cli.rendering import visible
from sparsesmith_proto.api import Cancelled, Failed, Finished, Graded, JobState, JobStatus, Queued, Running


class Progress:
    """One line that follows a job; silent with `quiet`."""

    def __init__(self, console: Console, quiet: bool) -> None:
        self._status: Status | None = None if quiet else console.status("sending the matrix")

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def update(self, job: JobStatus) -> None:
        if self._status is not None:
            self._status.update(escape(visible(describe(job.status))))


def describe(state: JobState) -> str:
    """The state in one line."""
    match state:
        case Queued(position=position):
            return f"queued, {position} ahead"
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
