"""What a writer is: it makes a program of one that was graded, or of none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from services.generator.writing.account import WritingAccount
from sparsesmith_proto.api import SourceName
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import Candidate, Outcome, Passed

Beginning = Literal["programs", "words"]
"""What a chain of refinements begins with: the first programs of the search, or the operation's words alone."""


class NothingNew(Exception):
    """Of this program the writer makes no other that was not tried."""


class NoAnswer(Exception):
    """This question came to nothing; another may not."""

    def __init__(self, reason: str, message: str) -> None:
        """`reason`: one or two words, by which failures are counted."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, eq=False)
class Attempt:
    """A program that was graded."""

    candidate: Candidate
    outcome: Outcome
    report: EvaluationReport
    """That it is from: device, baselines, profiles."""
    generation: int = 0
    """Changes since the program that its chain began with."""
    before: Attempt | None = None
    """What it was made of."""

    @property
    def median_us(self) -> float | None:
        """None: it did not pass, or took no time."""
        passed = isinstance(self.outcome, Passed) and self.outcome.timing.median_us > 0
        return self.outcome.timing.median_us if passed and isinstance(self.outcome, Passed) else None

    @property
    def baseline_us(self) -> float:
        return self.report.baselines.best_routine().timing.median_us


@dataclass(frozen=True)
class Ask:
    """For one program more."""

    number: int
    """Of the question, in this search."""
    parent: Attempt | None
    """None: from the operation's words alone."""
    num_before: int
    """Questions about the same parent before this one."""

    @property
    def generation(self) -> int:
        return 1 if self.parent is None else self.parent.generation + 1


class Writer(Protocol):
    """Of one search. Its methods are called from one event loop."""

    @property
    def name(self) -> SourceName:
        """Of the source that its programs are credited to."""
        ...

    @property
    def beginnings(self) -> tuple[Beginning, ...]:
        """Of the chains that it works on in turns; two, so that one is written while the other is graded."""
        ...

    @property
    def at_once(self) -> int | None:
        """Questions that may be under way. None: it answers at once, as many as there are."""
        ...

    @property
    def repairs(self) -> bool:
        """Whether it is asked about programs that failed, too."""
        ...

    @property
    def patience_s(self) -> float:
        """An answer may take so long."""
        ...

    @property
    def account(self) -> WritingAccount | None:
        """What answers cost. None: nothing that is worth telling."""
        ...

    def takes(self, attempt: Attempt) -> bool:
        """Whether it can make anything of a program that passed. Blocking."""
        ...

    async def write(self, ask: Ask) -> Candidate:
        """Raises NothingNew, NoAnswer; Unavailable where the writer does not work, LimitExceeded where it cannot take
        the problem."""
        ...
