"""The policy as a source: independent samples."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator

from services.generator.policy.sampling import PolicySampler, SampleGroup
from services.generator.policy.value_filter import ValueFilter
from services.generator.search.proposer import ENGINE_PATIENCE_S, Exhausted
from services.generator.search.sampled_knobs import SampledKnobs
from services.generator.search.standing import Batch, Standing
from services.generator.search.strategy import Sources
from services.generator.task import TuningTask
from sparsesmith.errors import Unavailable
from sparsesmith_proto.api import SourceName
from sparsesmith_proto.kernel import Candidate

log = logging.getLogger(__name__)

GROUP_SIZE = 16
"""Samples of one prompt. Prompts of a task differ in the nonzeros that they show."""

LINGER_S = 0.25
"""Samples that end this soon after one another travel in one batch."""


async def samples(task: TuningTask, sources: Sources, limit: int, standing: Standing) -> AsyncIterator[Batch]:
    """Best of n: in batches as they end, whatever their group and whatever was found meanwhile.

    Raises Unavailable where the service has no policy, or one that does not write programs for the workload.
    """
    if sources.sampler is None:
        raise Unavailable(
            "search=sample needs a policy and this service runs without one", field="search", value="sample"
        )
    workload = task.order.workload
    if not sources.sampler.writes(workload):
        described = f"{workload.operation} {workload.element_type}"
        raise Unavailable(
            f"search=sample: the policy writes no programs of {described}; search=families does",
            field="search",
            value="sample",
        )
    sampling = _Sampling(task, sources.sampler, limit, sources.samples_in_flight, sources.value_filter)
    try:
        while sampling.start(sources.batch_candidates if sampling.filtered else sources.samples_in_flight):
            began = time.monotonic()
            wanted = asyncio.ALL_COMPLETED if sampling.filtered else asyncio.FIRST_COMPLETED
            await asyncio.wait(sampling.running, return_when=wanted)
            await asyncio.sleep(LINGER_S)
            batch = await sampling.take(sources.batch_candidates)
            standing.proposed("policy", batch, time.monotonic() - began)
            yield batch
    finally:
        await sampling.close()


class PolicyProposer:
    """Samples in the rhythm of an allocator: a batch is sampled when it is asked for, and ready when all of it is.

    Samples with knobs are graded at their first values; what else they left open goes before new samples.
    """

    name: SourceName = "policy"

    def __init__(
        self,
        task: TuningTask,
        sampler: PolicySampler,
        limit: int,
        in_flight: int,
        value_filter: ValueFilter | None = None,
    ) -> None:
        self._sampler = sampler
        self._sampling = _Sampling(task, sampler, limit, in_flight, value_filter)
        self._knobs = SampledKnobs(task)

    @property
    def patience_s(self) -> float:
        """None for an engine that does not serve: one that loads, or never came up."""
        return 0.0 if self._sampler.host.engine is None else ENGINE_PATIENCE_S

    @property
    def is_busy(self) -> bool:
        return bool(self._sampling.running)

    @property
    def is_ready(self) -> bool:
        return self.is_busy and all(each.done() for each in self._sampling.running)

    async def propose(self, size: int, standing: Standing) -> Batch:
        """See Proposer."""
        if self.is_busy:
            return await self._sampling.take(size)
        if settings := await asyncio.to_thread(self._knobs.next_batch, size, standing):
            return settings
        if not self._sampling.start(size):
            raise Exhausted
        return ()

    async def ready(self) -> None:
        await asyncio.wait(self._sampling.running)

    async def close(self) -> None:
        await self._sampling.close()


class _Sampling:
    """Samples under way, at most `in_flight` at a time; `limit` of them are given, those that a filter leaves."""

    def __init__(
        self,
        task: TuningTask,
        sampler: PolicySampler,
        limit: int,
        in_flight: int,
        value_filter: ValueFilter | None = None,
    ) -> None:
        self._filter = value_filter
        factor = 1 if value_filter is None else value_filter.factor
        self._task = task
        self._sampler = sampler
        self._limit = limit * factor
        self._factor = factor
        self._in_flight = in_flight
        self._started = 0
        self._group: SampleGroup | None = None
        self.running: set[asyncio.Task[Candidate]] = set()

    @property
    def filtered(self) -> bool:
        return self._filter is not None

    def start(self, most: int) -> bool:
        """Have `most` under way, with a filter so many times more. False: all have been sampled and taken."""
        while self._started < self._limit and len(self.running) < min(most * self._factor, self._in_flight):
            if self._group is None or self._started % GROUP_SIZE == 0:
                size = min(GROUP_SIZE, self._limit - self._started)
                self._group = self._sampler.group(self._task, f"g{self._started // GROUP_SIZE}", size)
            self.running.add(asyncio.create_task(self._group.sample(self._started)))
            self._started += 1
        return bool(self.running)

    async def take(self, most: int) -> Batch:
        """What has ended; with a filter, once all has, the best of it."""
        if self._filter is None:
            return self._ended(most)
        if not all(each.done() for each in self.running):
            return ()
        samples = self._ended(len(self.running))
        kept = min(most, -(-len(samples) // self._factor))
        problem, workload = self._task.problem, self._task.order.workload
        return tuple(await asyncio.to_thread(self._filter.best, problem.pattern, workload, samples, kept))

    def _ended(self, most: int) -> Batch:
        ended = [each for each in self.running if each.done()][:most]
        self.running.difference_update(ended)
        for each in ended:
            if (failure := each.exception()) is not None:
                log.debug("a sample failed: %s", failure)
        return tuple(each.result() for each in ended)

    async def close(self) -> None:
        for each in self.running:
            each.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
