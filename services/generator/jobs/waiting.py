"""Accepted jobs that wait for a runner: clients in turns, small jobs first, each within a bound."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from services.generator.orders import AcceptedJob

MOST_PASSES = 8
"""So many others may go before a job that came earlier; then it is its turn."""

SIZE_CLASS = 4
"""Jobs whose work differs by less than this factor keep their order."""


@dataclass
class _Waiting:
    job: AcceptedJob
    client: str
    passed: int = 0

    @property
    def work(self) -> float:
        """Of unknown size where an earlier release stored it."""
        return math.inf if self.job.order.work is None else self.job.order.work

    @property
    def size_class(self) -> float:
        return math.inf if math.isinf(self.work) else math.floor(math.log(max(1.0, self.work), SIZE_CLASS))


class WaitingJobs:
    """In the order of their arrival."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._waiting

    def add(self, job: AcceptedJob, client: str) -> None:
        self._waiting[job.job_id] = _Waiting(job, client)

    def remove(self, job_id: str) -> None:
        self._waiting.pop(job_id, None)

    def position(self, job_id: str) -> int:
        """Jobs that came before it; 0 for one that does not wait."""
        return next((place for place, waiting in enumerate(self._waiting) if waiting == job_id), 0)

    def take(self, running: Collection[str], most_work: float = math.inf) -> tuple[AcceptedJob, str] | None:
        """The next job of at most this much work, and its client; `running` names the clients of running jobs, once for
        each job."""
        waiting = [each for each in self._waiting.values() if each.work <= most_work]
        if not waiting:
            return None
        turns = {client: list(running).count(client) for client in {each.client for each in waiting}}
        overdue = next((each for each in waiting if each.passed >= MOST_PASSES), None)
        chosen = overdue or min(waiting, key=lambda each: (turns[each.client], each.size_class))
        for each in self._waiting.values():
            if each is chosen:
                break
            each.passed += 1
        del self._waiting[chosen.job.job_id]
        return chosen.job, chosen.client
