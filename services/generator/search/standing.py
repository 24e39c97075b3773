"""What is known of a search so far: everything that was graded, whoever proposed it, and what each source brought."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from services.generator.writing.account import WritingAccount
from sparsesmith_proto.api import SourceName, SourceReport
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import (
    Candidate,
    Evaluation,
    FromFamily,
    Mutated,
    Passed,
    ProbeWritten,
    Sampled,
    UserWritten,
    Written,
)

Batch = tuple[Candidate, ...]


@dataclass(frozen=True)
class Turn:
    """One report of a source's candidates: what it cost and what it brought."""

    num_candidates: int
    seconds: float
    gain: float
    """Fall of the logarithm of the best time, of all sources and of the library, in this report."""


@dataclass
class Ledger:
    """Of one source."""

    num_proposed: int = 0
    num_passed: int = 0
    proposing_s: float = 0.0
    turns: list[Turn] = field(default_factory=list)
    writing: WritingAccount | None = None
    """Of a language model that is shown other programs."""

    @property
    def seconds(self) -> float:
        """Proposing and grading."""
        return self.proposing_s + sum(turn.seconds for turn in self.turns)

    @property
    def gain(self) -> float:
        """Fall of the logarithm of the best time."""
        return sum(turn.gain for turn in self.turns)


@dataclass(frozen=True)
class Awaited:
    """The next candidates to come back, after those that one has seen."""

    standing: "Standing"
    num_known: int

    @property
    def is_there(self) -> bool:
        return self.standing.num_back > self.num_known

    async def come(self) -> None:
        """Waits for them."""
        await self.standing.news(self.num_known)


class Standing:
    """One view for all sources; reports only ever join at the end."""

    def __init__(self) -> None:
        self._reports: list[EvaluationReport] = []
        self._ledgers: dict[SourceName, Ledger] = {}
        self._news = asyncio.Event()
        self.num_under_way = 0
        """Candidates that were handed out and have not come back."""
        self.num_back = 0
        """Candidates that came back, graded or not."""
        self.best: Evaluation | None = None
        """The fastest that passed."""
        self.best_us = math.inf
        """Of what passed and of the library's best routine, as the same clock saw them."""

    def of(self, source: SourceName) -> Ledger:
        return self._ledgers.setdefault(source, Ledger())

    def proposed(self, source: SourceName, batch: Batch, seconds: float) -> None:
        """A source handed out a batch, or nothing, after so long."""
        self.num_under_way += len(batch)
        self.of(source).num_proposed += len(batch)
        self.of(source).proposing_s += seconds

    async def news(self, num_known: int) -> None:
        """Waits until more than `num_known` candidates have come back."""
        while self.num_back <= num_known:
            self._news.clear()
            await self._news.wait()

    def lost(self, batch: Batch) -> None:
        """Nobody could grade these."""
        self._came_back(len(batch))

    def add(self, report: EvaluationReport) -> None:
        self._came_back(len(report.evaluations))
        self._reports.append(report)
        self.best_us = min(self.best_us, report.baselines.best_routine().timing.median_us)
        sources = {source for each in report.evaluations if (source := source_of(each.candidate)) is not None}
        for source in sorted(sources):
            self._credit(source, [each for each in report.evaluations if source_of(each.candidate) == source], report)

    def after(self, num_read: int) -> Sequence[EvaluationReport]:
        """Reports that came after the first `num_read`."""
        return self._reports[num_read:]

    def sources(self) -> tuple[SourceReport, ...]:
        """What each source brought, in the order in which they were first asked."""
        return tuple(
            SourceReport(
                source=source,
                proposed=ledger.num_proposed,
                passed=ledger.num_passed,
                seconds=ledger.seconds,
                gain=1 - math.exp(-ledger.gain),
                writing=None if ledger.writing is None else ledger.writing.report(),
            )
            for source, ledger in self._ledgers.items()
        )

    def _came_back(self, count: int) -> None:
        self.num_back += count
        self.num_under_way -= count
        self._news.set()

    def _credit(self, source: SourceName, evaluations: Sequence[Evaluation], report: EvaluationReport) -> None:
        before_us = self.best_us
        for evaluation in evaluations:
            if isinstance(evaluation.outcome, Passed):
                self.of(source).num_passed += 1
                self._enter(evaluation, evaluation.outcome.timing.median_us)
        gain = math.log(before_us / self.best_us) if 0 < self.best_us < before_us else 0.0
        seconds = report.seconds * len(evaluations) / len(report.evaluations)
        self.of(source).turns.append(Turn(len(evaluations), seconds, gain))

    def _enter(self, evaluation: Evaluation, median_us: float) -> None:
        if 0 < median_us < self.best_us:
            self.best, self.best_us = evaluation, median_us


def source_of(candidate: Candidate) -> SourceName | None:
    """None: a user wrote it, or a canary asked for it."""
    match candidate.origin:
        case FromFamily():
            return "families"
        case Sampled(parent=parent):
            return "policy" if parent is None else "edits"
        case Mutated():
            return "mutate"
        case Written(writer=writer):
            return writer
        case UserWritten() | ProbeWritten():
            return None
        case origin:
            assert_never(origin)
