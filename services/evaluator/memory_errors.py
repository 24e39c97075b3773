"""Errors of a GPU's memory, counted by its ECC, before and after each job: what was measured in memory that changed by
itself is worth nothing, whoever made it change.

Not protected against: a memory without ECC, flips that ECC does not see (three bits of a word), and an error that the
driver counts only after the second reading.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from sparsesmith.errors import Unavailable

log = logging.getLogger(__name__)

Counts = Mapping[str, int]
"""Errors since the driver was loaded, by kind."""


class ErrorCounters(Protocol):
    """Of one memory."""

    def read(self) -> Counts: ...


class MemoryFaulty(Unavailable):
    """The memory changed by itself while a job ran: its results count for nothing, and the job goes to another GPU."""


def changes(before: Counts, after: Counts) -> str:
    """What moved, in words; empty: nothing."""
    kinds = sorted(kind for kind in {*before, *after} if before.get(kind) != after.get(kind))
    return ", ".join(
        f"{kind} errors from {before.get(kind, 'unknown')} to {after.get(kind, 'unknown')}" for kind in kinds
    )


@dataclass(frozen=True)
class MemoryWatch:
    """Over the jobs of one evaluator."""

    counters: ErrorCounters
    quarantine: Callable[[str], None]
    """Takes the GPU out of service, for the reason given; no evaluator takes it from then on."""

    @contextmanager
    def over(self, job_id: str) -> Iterator[None]:
        """Raises MemoryFaulty at the end of a job in which a counter moved, however the job ended."""
        before = self.counters.read()
        try:
            yield
        finally:
            if moved := changes(before, self.counters.read()):
                reason = f"{moved} while job {job_id} ran"
                log.error("the GPU's memory is faulty: %s", reason)
                self.quarantine(reason)
                raise MemoryFaulty(f"the GPU's memory is faulty: {reason}", field="ecc", value=moved)


class Uncounted:
    """A memory that nobody counts errors of: without ECC, or no GPU's."""

    def read(self) -> Counts:
        return {}


UNWATCHED = MemoryWatch(Uncounted(), lambda reason: None)
