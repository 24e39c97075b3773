"""Search strategies: where the candidates of a request come from."""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence

from services.generator.search.allocator import Allocator
from services.generator.search.families import FamilyProposer
from services.generator.search.polishing import Polisher, may_polish, polished
from services.generator.search.proposer import Proposer
from services.generator.search.refine import InOrder, refine
from services.generator.search.sample import PolicyProposer, samples
from services.generator.search.standing import Batch, Standing
from services.generator.search.strategy import Sources, Strategy, allotted
from services.generator.search.written import WrittenProposer
from services.generator.task import TuningTask
from services.generator.writing.mutation import MutationWriter
from services.generator.writing.policy import PolicyWriter
from sparsesmith_proto.api import Refinement, SearchStrategy

log = logging.getLogger(__name__)


def auto(task: TuningTask, sources: Sources, limit: int, standing: Standing) -> AsyncIterator[Batch]:
    """Families, and the policy where it pays; families alone where there is no policy, it cannot be loaded or does not
    write programs for the workload. Changes of the fastest, by mutators or by the policy, where the service's settings
    say so."""
    proposers: list[Proposer] = [FamilyProposer(task, sources.cost_models, limit)]
    sampler, workload = sources.sampler, task.order.workload
    if sampler is not None and not sampler.is_broken:
        if sampler.writes(workload):
            proposers.append(PolicyProposer(task, sampler, limit, sources.samples_in_flight, sources.value_filter))
        else:
            described = f"{workload.operation} {workload.element_type}"
            log.info("job %s: the policy writes no programs of %s and is left out", task.job_id, described)
    if sources.mutates:
        proposers.append(WrittenProposer(task, limit, Refinement(), MutationWriter(task)))
    editor = sources.writers.editor if sources.edits else None
    if editor is not None and not editor.sampler.is_broken and editor.writes(workload):
        loop = Refinement()
        proposers.append(WrittenProposer(task, limit, loop, PolicyWriter(task, editor, loop.children)))
    return _search(task, sources, proposers, limit, standing)


def families(task: TuningTask, sources: Sources, limit: int, standing: Standing) -> AsyncIterator[Batch]:
    """Programs of the families, likely winners first, until more are not worth their time."""
    return _search(task, sources, [FamilyProposer(task, sources.cost_models, limit)], limit, standing)


def _search(
    task: TuningTask, sources: Sources, proposers: Sequence[Proposer], limit: int, standing: Standing
) -> AsyncIterator[Batch]:
    """What the sources have, and in the end changes of the fastest."""
    search = allotted(proposers, Allocator(task.run_id), standing, sources.batch_candidates)
    if not (sources.polishes and may_polish(task)):
        return search
    return polished(search, allotted([Polisher(task, limit)], InOrder(), standing, sources.batch_candidates))


STRATEGIES: Mapping[SearchStrategy, Strategy] = {
    "auto": auto,
    "families": families,
    "sample": samples,
    "refine": refine,
    "instant": auto,
}

__all__ = ["STRATEGIES", "Batch", "Sources", "Standing", "Strategy"]
