"""Families where an order fixes the values: those made for it, and the general ones with their values compressed."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from services.generator.search.strategy import Batch, Sources
from services.generator.task import TuningTask
from sparsesmith.domain.families import FamilyInstance, propose
from sparsesmith.domain.families.fixed_proposal import propose_fixed
from sparsesmith.domain.fixed_values import FixedValues
from sparsesmith_proto.kernel import Candidate, FromFamily

FIRST_BATCH = 4
"""Small, so that the first graded candidates come soon."""


async def fixed_value_families(
    task: TuningTask, values: FixedValues, sources: Sources, limit: int
) -> AsyncIterator[Batch]:
    """Likely winners first."""
    instances = await asyncio.to_thread(_proposed, task, values, limit)
    start, size = 0, min(FIRST_BATCH, sources.batch_candidates)
    while start < len(instances):
        yield _batch(task, instances, start, size)
        start, size = start + size, sources.batch_candidates


def _proposed(task: TuningTask, values: FixedValues, limit: int) -> list[FamilyInstance]:
    workload = task.order.workload
    general = propose(task.pattern, workload.operation, workload.element_type, workload.num_dense_cols, limit)
    return propose_fixed(task.pattern, values, workload.operation, workload.element_type, general, limit)


def _batch(task: TuningTask, instances: Sequence[FamilyInstance], start: int, size: int) -> Batch:
    return tuple(
        Candidate(
            candidate_id=f"{task.run_id}-v{number}",
            program=instance.program,
            origin=FromFamily(family=instance.family, parameters=dict(instance.parameters)),
        )
        for number, instance in enumerate(instances[start : start + size], start)
    )
