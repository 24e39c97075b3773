"""Classical autotuning over the kernel families: no model."""

import asyncio
from collections.abc import AsyncIterator

from services.generator.search.strategy import Batch, Sources
from services.generator.task import TuningTask
from sparsesmith.domain.families import FamilyInstance, propose
from sparsesmith_proto.kernel import Candidate, FromFamily

FIRST_BATCH = 4
"""Small, so that the first graded candidates come soon."""


async def families(task: TuningTask, sources: Sources, limit: int) -> AsyncIterator[Batch]:
    """The families' proposals, likely winners first."""
    workload = task.order.workload
    instances = await asyncio.to_thread(
        propose, task.pattern, workload.operation, workload.element_type, workload.num_dense_cols, limit
    )
    candidates = [_candidate(task, number, instance) for number, instance in enumerate(instances[:limit])]
    start, size = 0, min(FIRST_BATCH, sources.batch_candidates)
    while start < len(candidates):
        yield tuple(candidates[start : start + size])
        start, size = start + size, sources.batch_candidates


def _candidate(task: TuningTask, number: int, instance: FamilyInstance) -> Candidate:
    return Candidate(
        candidate_id=f"{task.run_id}-f{number}",
        program=instance.program,
        origin=FromFamily(family=instance.family, parameters=dict(instance.parameters)),
    )
