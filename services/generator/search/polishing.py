"""The end of a search: the families' fastest programs with sizes of blocks that no family offers.

The tuner leaves next to nothing in its grid; of what lies outside, these few changes were faster most often
(`sparsesmith.mutation.likely`). They cost some ten candidates, after the tuner has had enough.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from typing import Any, cast

from services.generator.search.proposer import Exhausted
from services.generator.search.standing import Awaited, Batch, Standing
from services.generator.task import TuningTask
from services.generator.writing import Attempt
from services.generator.writing.mutation import changed_candidate, subject_of_candidate
from sparsesmith.mutation import WORTH, Mutant, Subject
from sparsesmith.mutation.likely import likely_mutants
from sparsesmith.program.atomics import allowed_texts
from sparsesmith_proto.api import SourceName
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import Candidate, FromFamily, MeasuredTiming, Mutated, Passed

ROUND = 8
"""Changes of the fastest."""
OF_ANOTHER_FAMILY = 4
"""Changes in the first round of the fastest of another family..."""
NEAR = 1.05
"""...that is within this factor of the best."""
ROUNDS = 3
MOST_NNZ = 1_000_000
"""Beyond, where bandwidth is all, these changes gained 1 % on none of eleven workloads."""
WORTHWHILE = 0.995
"""A round goes on from what took this share of the time of the best before it, or less."""


class Polisher:
    """Changes of the fastest, a round after what came before it was graded; see Proposer."""

    name: SourceName = "mutate"
    patience_s = 0.0

    def __init__(self, task: TuningTask, limit: int) -> None:
        """`limit`: candidates of the whole search."""
        self._task = task
        self._limit = limit
        self._allows = allowed_texts(task.problem.workload)
        self._tried: set[str] = set()
        self._sent: dict[str, Mutant] = {}
        self._num_rounds = 0
        self._aim_us: float | None = None
        self._awaited: Awaited | None = None

    @property
    def is_busy(self) -> bool:
        """Whether grades are waited for."""
        return self._awaited is not None

    @property
    def is_ready(self) -> bool:
        return self._awaited is not None and self._awaited.is_there

    async def propose(self, size: int, standing: Standing) -> Batch:
        """A whole round, whatever size is asked for. Empty while anything is under way: which is the fastest is not
        known."""
        self._awaited = Awaited(standing, standing.num_back) if standing.num_under_way else None
        if self._awaited is not None:
            return ()
        graded = [each for report in standing.after(0) for each in _attempts(report)]
        best = min(filter(_is_measured, graded), key=_us, default=None)
        if best is None or self._num_rounds >= ROUNDS or (self._aim_us is not None and _us(best) > self._aim_us):
            raise Exhausted
        self._num_rounds, self._aim_us = self._num_rounds + 1, WORTHWHILE * _us(best)
        batch = await asyncio.to_thread(self._round, best, graded, self._limit - standing.num_back)
        if not batch:
            raise Exhausted
        return batch

    async def ready(self) -> None:
        """Waits for the next report."""
        if self._awaited is not None:
            await self._awaited.come()

    async def close(self) -> None:
        """Nothing is held."""

    def _round(self, best: Attempt, graded: Sequence[Attempt], room: int) -> Batch:
        self._tried |= {each.candidate.program for each in graded}
        chosen = list(islice(self._changes(best), ROUND))
        if self._num_rounds == 1 and (other := _of_another_family(best, graded)) is not None:
            chosen += islice(self._changes(other), OF_ANOTHER_FAMILY)
        return tuple(chosen[: max(0, room)])

    def _changes(self, parent: Attempt) -> Iterator[Candidate]:
        subject = self._subject(parent.candidate)
        for mutant in likely_mutants(subject) if subject is not None else ():
            if mutant.text not in self._tried and self._allows(mutant.text):
                self._tried.add(mutant.text)
                name = f"{self._task.run_id}-l{len(self._sent)}"
                self._sent[name] = mutant
                yield changed_candidate(name, parent, mutant, "likely")

    def _subject(self, candidate: Candidate) -> Subject | None:
        sent = self._sent.get(candidate.candidate_id)
        return subject_of_candidate(candidate, self._task) if sent is None else sent.subject


def _attempts(report: EvaluationReport) -> Iterator[Attempt]:
    for each in report.evaluations:
        origin = each.candidate.origin
        generation = origin.generation if isinstance(origin, Mutated) else 0
        yield Attempt(each.candidate, each.outcome, report, generation)


def _of_another_family(best: Attempt, graded: Sequence[Attempt]) -> Attempt | None:
    """The fastest that is near the best."""
    near = [each for each in graded if _is_measured(each) and _us(each) <= NEAR * _us(best)]
    return min((each for each in near if _family(each) not in (None, _family(best))), key=_us, default=None)


def _family(attempt: Attempt) -> str | None:
    origin = attempt.candidate.origin
    return origin.family if isinstance(origin, FromFamily) else None


def _is_measured(attempt: Attempt) -> bool:
    """An estimate of an interpreter does not tell sizes of blocks apart as a GPU does."""
    outcome = attempt.outcome
    return attempt.median_us is not None and isinstance(outcome, Passed) and isinstance(outcome.timing, MeasuredTiming)


def _us(attempt: Attempt) -> float:
    return attempt.median_us or math.inf


def may_polish(task: TuningTask) -> bool:
    """Of operations of which a harvest has told which changes win, and where they were seen to pay."""
    matrix = task.problem.matrix
    return matrix is not None and matrix.nnz <= MOST_NNZ and task.order.workload.operation in WORTH


async def polished(search: AsyncIterator[Batch], polish: AsyncIterator[Batch]) -> AsyncIterator[Batch]:
    """The one, and where it ends the other."""
    try:
        async for batch in search:
            yield batch
        async for batch in polish:
            yield batch
    finally:
        await cast(Any, search).aclose()
        await cast(Any, polish).aclose()
