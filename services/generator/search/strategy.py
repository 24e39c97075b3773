"""A search: sources of candidates over one standing, and an allocator that says whose turn it is."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.generator.policy.sampling import PolicySampler
from services.generator.policy.value_filter import ValueFilter
from services.generator.search.allocator import batch_size
from services.generator.search.proposer import Exhausted, Proposer
from services.generator.search.standing import Batch, Standing
from services.generator.task import TuningTask
from services.generator.writing import Writers
from sparsesmith.errors import Unavailable
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.api import SourceName

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sources:
    """Where strategies get candidates from."""

    sampler: PolicySampler | None
    """None: the service runs without a policy."""
    batch_candidates: int
    samples_in_flight: int
    cost_models: CostModels = field(default_factory=CostModels)
    mutates: bool = False
    """Whether `auto` changes the fastest programs, too."""
    value_filter: ValueFilter | None = None
    """None: every sample is graded."""
    writers: Writers = field(default_factory=Writers)
    """Who may change programs in `refine`."""
    edits: bool = False
    """Whether in `auto` the policy is shown the fastest programs, too."""
    polishes: bool = False
    """Whether `auto` and `families` end with a few changes of the fastest."""


class Turns(Protocol):
    """Says whose turn it is; see `allocator.Allocator`."""

    def next(self, sources: Sequence[SourceName], standing: Standing) -> SourceName | None: ...


async def allotted(
    proposers: Sequence[Proposer], allocator: Turns, standing: Standing, most: int
) -> AsyncIterator[Batch]:
    """Batches of at most `most` candidates, until no source has any that are worth their time.

    It is asked for the next batch when the evaluators have room for it, and closed when the budget is spent. A source
    that does not work is left; raises Unavailable where that was the only one.
    """
    live = {proposer.name: proposer for proposer in proposers}
    asked: dict[SourceName, float] = {}
    try:
        while live:
            source = _whose_turn(live, allocator, standing)
            if source is None:
                if not await _anything_new(live, standing):
                    return
                continue
            asked.setdefault(source, time.monotonic())
            try:
                batch = await live[source].propose(batch_size(source, standing, most), standing)
            except Exhausted:
                del live[source]
                continue
            except Unavailable as error:
                if len(proposers) == 1:
                    raise
                log.warning("a search source gave up, the others go on: %s", error)
                del live[source]
                continue
            if batch:
                standing.proposed(source, batch, time.monotonic() - asked.pop(source))
                yield batch
    finally:
        for proposer in proposers:
            await proposer.close()


def _whose_turn(live: Mapping[SourceName, Proposer], allocator: Turns, standing: Standing) -> SourceName | None:
    """What is ready goes first: it was allotted before. None: all that are worth a batch are busy with one."""
    ready = next((source for source, proposer in live.items() if proposer.is_ready), None)
    return ready or allocator.next([source for source, proposer in live.items() if not proposer.is_busy], standing)


async def _anything_new(live: Mapping[SourceName, Proposer], standing: Standing) -> bool:
    """Waits for a busy source, or for what is being graded. False: no source is busy, or it takes too long when nothing
    is under way."""
    busy = [proposer for proposer in live.values() if proposer.is_busy]
    if not busy:
        return False
    waits = [asyncio.create_task(proposer.ready()) for proposer in busy]
    is_grading = standing.num_under_way > 0
    if is_grading:
        waits.append(asyncio.create_task(standing.news(standing.num_back)))
    try:
        timeout = None if is_grading else max(proposer.patience_s for proposer in busy)
        done, _ = await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return bool(done) if is_grading else any(proposer.is_ready for proposer in live.values())


class Strategy(Protocol):
    """The sources of a search: batches of candidates, the most promising early.

    `limit` is the budget; `standing` holds what was graded until now, whoever proposed it.
    """

    def __call__(self, task: TuningTask, sources: Sources, limit: int, standing: Standing) -> AsyncIterator[Batch]: ...
