"""What was tried for a job, kept for its user: every candidate with its outcome, failures included."""

import asyncio
import logging
from collections.abc import Iterator

from services.generator.task import TuningTask
from services.generator.writing.floor import floor_us
from sparsesmith.errors import NotFound, Unavailable
from sparsesmith.transport.candidate_store import CandidateStore
from sparsesmith_proto.api import CandidatePage, FromPolicy, TriedCandidate
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import (
    FromFamily,
    Mutated,
    Origin,
    Outcome,
    Passed,
    ProbeWritten,
    Sampled,
    UserWritten,
    Written,
)

log = logging.getLogger(__name__)

PAGE_CANDIDATES = 256
"""Read from the store at a time."""


class Trials:
    """An outage of the store leaves a gap: what is told of candidates is never a reason for a job to fail."""

    def __init__(self, store: CandidateStore) -> None:
        self._store = store

    async def begin(self, job_id: str) -> None:
        """A run of the job starts: what an earlier one tried does not count."""
        try:
            await asyncio.to_thread(self._store.clear, job_id)
        except Unavailable as error:
            log.warning("candidates of an earlier run of job %s may stay: %s", job_id, error)

    async def add(self, task: TuningTask, report: EvaluationReport) -> None:
        await self.keep(task.job_id, report, task.elapsed_s, floor_us(task.problem, report.device))

    async def keep(self, job_id: str, report: EvaluationReport, graded_s: float, floor_us: float | None = None) -> None:
        """`floor_us`: what copying alone would take."""
        tried = [
            TriedCandidate(
                number=number,
                candidate_id=evaluation.candidate.candidate_id,
                program=evaluation.candidate.program,
                written=evaluation.candidate.written,
                settings=evaluation.candidate.settings,
                origin=told_origin(evaluation.candidate.origin),
                outcome=evaluation.outcome,
                graded_s=graded_s,
                share_of_floor=_share(floor_us, evaluation.outcome),
            )
            for number, evaluation in enumerate(report.evaluations)
        ]
        try:
            await asyncio.to_thread(self._store.add, job_id, tried)
        except Unavailable as error:
            log.warning("%d candidates of job %s are not kept: %s", len(tried), job_id, error)

    async def page(self, job_id: str, offset: int, limit: int) -> CandidatePage:
        """Raises Unavailable."""
        return await asyncio.to_thread(self._store.page, job_id, offset, limit)

    async def one(self, job_id: str, number: int) -> TriedCandidate:
        """Raises NotFound, Unavailable."""
        page = await self.page(job_id, number, 1)
        if not page.candidates:
            raise NotFound(f"job {job_id} has no candidate {number}", field="number", value=number)
        return page.candidates[0]

    async def all(self, job_id: str) -> tuple[TriedCandidate, ...]:
        """Raises Unavailable."""
        return tuple(await asyncio.to_thread(lambda: list(self._pages(job_id))))

    def _pages(self, job_id: str) -> Iterator[TriedCandidate]:
        offset: int | None = 0
        while offset is not None:
            page = self._store.page(job_id, offset, PAGE_CANDIDATES)
            yield from page.candidates
            offset = page.next_offset


def _share(floor_us: float | None, outcome: Outcome) -> float | None:
    if floor_us is None or not isinstance(outcome, Passed) or outcome.timing.median_us <= 0:
        return None
    return floor_us / outcome.timing.median_us


def told_origin(origin: Origin) -> FromPolicy | FromFamily | Mutated | Written | UserWritten | ProbeWritten:
    """Without the tokens and log-probabilities, which only the trainer needs."""
    if isinstance(origin, Sampled):
        shown = origin.prompt.parent
        return FromPolicy(
            group=origin.group,
            first_version=origin.first_version,
            last_version=origin.last_version,
            temperature=origin.temperature,
            min_p=origin.min_p,
            parent=origin.parent,
            generation=origin.generation or None,
            report=None if shown is None else shown.report,
        )
    return origin
