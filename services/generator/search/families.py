"""Autotuning over the kernel families: a cost model proposes, what was graded corrects it. No language model."""

import asyncio
from collections.abc import AsyncIterator

from services.generator.search.fixed_values import fixed_value_families
from services.generator.search.strategy import Batch, Findings, Sources
from services.generator.task import TuningTask
from sparsesmith.domain.families import FamilyInstance
from sparsesmith.domain.families.fixed_proposal import compressed_instance, compressions
from sparsesmith.tuning.cost import CostModel
from sparsesmith.tuning.grid import grid_of
from sparsesmith.tuning.tuner import Failure, Tuner, TuningLimits
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import Candidate, FromFamily, Outcome, Passed

FIRST_BATCH = 4
"""Small, so that the first graded candidates come soon."""

NEXT_BATCHES = 12
"""Small, too: every batch is chosen by what the ones before it have shown."""


async def families(task: TuningTask, sources: Sources, limit: int, findings: Findings) -> AsyncIterator[Batch]:
    """Programs of the families, likely winners first, until more are not worth their time."""
    num_own = 0
    if task.values is not None:
        async for batch in fixed_value_families(task, task.values, sources, (limit + 1) // 2):
            num_own += len(batch)
            yield batch
    search = await asyncio.to_thread(_Search, task, sources, limit - num_own)
    size = FIRST_BATCH
    while True:
        search.read(findings)
        batch = await asyncio.to_thread(search.next_batch, min(size, sources.batch_candidates))
        if not batch:
            return
        yield batch
        size = NEXT_BATCHES


class _Search:
    """A tuner, and the candidates that carry its programs; compressed as far as they can be where values are fixed."""

    def __init__(self, task: TuningTask, sources: Sources, limit: int) -> None:
        workload = task.order.workload
        self._task = task
        self._cost_models = sources.cost_models
        self._cost: CostModel = sources.cost_models.expected()
        grid = grid_of(task.pattern, workload.operation, workload.element_type, workload.num_dense_cols)
        self._tuner = Tuner(grid, self._cost, TuningLimits(candidates=limit))
        self._compressions = None if task.values is None else compressions(task.values)
        self._sent: dict[str, FamilyInstance] = {}
        self._num_read = 0

    def next_batch(self, size: int) -> Batch:
        return tuple(self._candidate(instance) for instance in self._tuner.next_batch(size))

    def read(self, findings: Findings) -> None:
        """Tell the tuner what became of its programs."""
        for report in findings.after(self._num_read):
            self._num_read += 1
            self._rely_on(self._cost_models.on(report.device.name))
            self._tell(report)

    def _rely_on(self, cost: CostModel) -> None:
        if cost is not self._cost:
            self._cost = cost
            self._tuner.rely_on(cost)

    def _tell(self, report: EvaluationReport) -> None:
        for evaluation in report.evaluations:
            instance = self._sent.get(evaluation.candidate.candidate_id)
            if instance is not None:
                self._tuner.tell(instance, _result(evaluation.outcome))

    def _candidate(self, instance: FamilyInstance) -> Candidate:
        name = f"{self._task.run_id}-f{len(self._sent)}"
        self._sent[name] = instance
        sent = instance if self._compressions is None else compressed_instance(instance, self._compressions)
        origin = FromFamily(family=sent.family, parameters=dict(sent.parameters))
        return Candidate(candidate_id=name, program=sent.program, origin=origin)


def _result(outcome: Outcome) -> float | Failure:
    if isinstance(outcome, Passed):
        return outcome.timing.median_us
    return outcome.outcome
