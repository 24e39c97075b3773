"""What an order that fixes the values adds to the families: some made for it, and general programs compressed."""

import asyncio
from collections.abc import AsyncIterator

from services.generator.search.strategy import Batch, Sources
from services.generator.task import TuningTask
from sparsesmith.families.fixed_proposal import own_instances
from sparsesmith.matrix.values import FixedValues
from sparsesmith_proto.kernel import Candidate, FromFamily


async def fixed_value_families(
    task: TuningTask, values: FixedValues, sources: Sources, limit: int
) -> AsyncIterator[Batch]:
    """Programs of the families for fixed values, likely winners first; none where rows and values hardly repeat."""
    workload = task.order.workload
    instances = await asyncio.to_thread(own_instances, task.pattern, values, workload.operation, workload.element_type)
    candidates = [
        Candidate(
            candidate_id=f"{task.run_id}-v{number}",
            program=instance.program,
            origin=FromFamily(family=instance.family, parameters=dict(instance.parameters)),
        )
        for number, instance in enumerate(instances[:limit])
    ]
    for start in range(0, len(candidates), sources.batch_candidates):
        yield tuple(candidates[start : start + sources.batch_candidates])
