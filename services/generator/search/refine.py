"""Generate, grade, change what was found, and so on: the loop of FSR, with any writer.

The first programs are the families' likely winners (of a task, programs of its folder with settings of their knobs), or
what the operation's folder has where it has no families.
`children` of each of the `beam` fastest programs, down to `generations` changes. What failed is told with its reason,
and a writer that repairs is asked to; mutators do not.
"""

from collections.abc import AsyncIterator, Sequence

from services.generator.search.allocator import FIXED_CANDIDATES
from services.generator.search.families import FamilyProposer
from services.generator.search.proposer import Exhausted, Proposer
from services.generator.search.standing import Batch, Standing
from services.generator.search.strategy import Sources, allotted
from services.generator.search.written import WrittenProposer
from services.generator.task import TuningTask
from sparsesmith.families import FAMILIES
from sparsesmith.operations import operation_named
from sparsesmith.operations.texts import with_element_type
from sparsesmith_proto.api import SourceName
from sparsesmith_proto.kernel import Candidate, FromFamily


class FirstPrograms:
    """What the operation's folder has: programs that everybody writes first. A family each, without parameters."""

    name: SourceName = "families"
    is_busy = False
    is_ready = False
    patience_s = 0.0

    def __init__(self, task: TuningTask) -> None:
        workload = task.order.workload
        self._left: Batch = tuple(
            Candidate(
                candidate_id=f"{task.run_id}-p{number}",
                program=with_element_type(text, workload.element_type),
                origin=FromFamily(family=name, parameters={}),
            )
            for number, (name, text) in enumerate(operation_named(workload.operation).programs.items())
        )

    async def propose(self, size: int, standing: Standing) -> Batch:
        """See Proposer."""
        batch, self._left = self._left[:size], self._left[size:]
        if not batch:
            raise Exhausted
        return batch

    async def ready(self) -> None:
        """It is never busy."""

    async def close(self) -> None:
        """Nothing is held."""


class InOrder:
    """One source after the other."""

    def next(self, sources: Sequence[SourceName], standing: Standing) -> SourceName | None:
        return next(iter(sources), None)


def refine(task: TuningTask, sources: Sources, limit: int, standing: Standing) -> AsyncIterator[Batch]:
    """The first programs, and what the request's writer makes of them. Raises InvalidOption where there is no such
    writer any more."""
    changed = WrittenProposer(task, limit, task.order.options.refine, sources.writers.of(task))
    return allotted([_first(task, sources, limit), changed], InOrder(), standing, sources.batch_candidates)


def _first(task: TuningTask, sources: Sources, limit: int) -> Proposer:
    has_families = any(family.operation == task.order.workload.operation for family in FAMILIES.values())
    if has_families or task.problem.matrix is None:
        return FamilyProposer(task, sources.cost_models, min(FIXED_CANDIDATES, (limit + 1) // 2))
    return FirstPrograms(task)
