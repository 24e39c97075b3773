"""A kernel before the search: the cost model's choice, checked once by an evaluator, handed out."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.generator.search.standing import Batch, Standing
from services.generator.task import TuningTask
from sparsesmith.errors import InvalidOption, LimitExceeded, Unavailable
from sparsesmith.program.atomics import allowed_texts
from sparsesmith.tuning.instant import Choice, choices, filled_in
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.api import InstantKernel
from sparsesmith_proto.evaluation import InstantJob, InstantReport
from sparsesmith_proto.kernel import Candidate, Checked, EstimatedTiming

log = logging.getLogger(__name__)

TRIES = 3
"""Choices, each of another family, of which the first that passes its check is handed out."""
BUDGET_S = 30.0
"""Of one check: what takes longer is no instant."""
ESTIMATE = "families"
"""Name of the model behind a kernel's expected time."""


class FirstChecks(Protocol):
    """Where a program is checked at once."""

    async def hand_out(self, job: InstantJob) -> InstantReport:
        """Raises Unavailable, LimitExceeded."""
        ...


@dataclass(frozen=True)
class InstantTools:
    """What it takes to have a kernel before the search."""

    checks: FirstChecks
    devices: Callable[[], Awaitable[Sequence[str]]]
    """Names of the devices that work now."""


@dataclass(frozen=True)
class HandedOut:
    """What was handed out, and the task that goes on behind it."""

    kernel: InstantKernel
    task: TuningTask


async def hand_out(task: TuningTask, cost_models: CostModels, tools: InstantTools) -> HandedOut | None:
    """The first choice that passes its check; None where none of a few does, or nobody can check now."""
    operation = task.problem.workload.operation
    await _meet_devices(cost_models, operation, tools)
    cost = cost_models.expected(operation, task.device)
    found, stages_ms = choices(task.problem, cost, allowed_texts(task.problem.workload)), dict[str, float]()
    try:
        for number in range(TRIES):
            begun = time.perf_counter()
            # One at a time: the first is compiled before a second is written.
            if (choice := await asyncio.to_thread(next, found, None)) is None:
                return None
            _add(stages_ms, {"choose": (time.perf_counter() - begun) * 1e3})
            candidate = choice.instance.candidate(f"{task.run_id}-i{number}")
            job = InstantJob(
                job_id=candidate.candidate_id,
                workload=task.problem.workload,
                candidate=filled_in(candidate, choice.instance),
                budget_s=BUDGET_S,
                search=task.run_id,
                gpu=task.order.options.gpu,
            )
            report = await tools.checks.hand_out(job)
            _add(stages_ms, report.stages_ms)
            if isinstance(report.outcome, Checked):
                kernel = _kernel(task, report, report.outcome, choice, cost.name, stages_ms)
                return HandedOut(kernel, task.led_by(candidate))
            log.info("job %s: %s is not handed out: %s", task.job_id, choice.instance.family, report.outcome)
    except (Unavailable, LimitExceeded, InvalidOption) as error:
        log.warning("job %s: no kernel is handed out before the search: %s", task.job_id, error)
    return None


async def lead_first(lead: Candidate, batches: AsyncIterator[Batch], standing: Standing) -> AsyncIterator[Batch]:
    """The program that was handed out, alone, then all others: it is known soon whether it must be withdrawn."""
    standing.proposed("families", (lead,), 0.0)
    yield (lead,)
    async for batch in batches:
        yield batch


async def _meet_devices(cost_models: CostModels, operation: str, tools: InstantTools) -> None:
    """Before the first report the models do not know what they are asked for."""
    if not cost_models.knows_a_device and len(names := set(await tools.devices())) == 1:
        cost_models.on(names.pop(), operation)


def _add(stages_ms: dict[str, float], more: Mapping[str, float]) -> None:
    """All tries are paid."""
    for stage, ms in more.items():
        stages_ms[stage] = stages_ms.get(stage, 0.0) + ms


def _kernel(
    task: TuningTask,
    report: InstantReport,
    checked: Checked,
    choice: Choice,
    chosen_by: str,
    stages_ms: Mapping[str, float],
) -> InstantKernel:
    return InstantKernel(
        workload=task.problem.workload,
        candidate=report.candidate,
        checked=checked,
        chosen_by=chosen_by,
        expected=EstimatedTiming(median_us=choice.estimated_us, traffic_model=ESTIMATE),
        device=report.device,
        stages_ms=dict(stages_ms),
        tuning_s=task.tuning_s,
    )
