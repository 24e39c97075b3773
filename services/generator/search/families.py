"""Autotuning over the kernel families: a cost model proposes, what was graded corrects it. No language model."""

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from services.generator.search.fixed_values import fixed_value_families
from services.generator.search.proposer import Exhausted
from services.generator.search.standing import Batch, Standing
from services.generator.task import TuningTask
from sparsesmith.families import FamilyInstance
from sparsesmith.families.fixed.proposal import compressed_instance, compressions
from sparsesmith.program.atomics import allowed_texts
from sparsesmith.tuning.cost import CostModel
from sparsesmith.tuning.grid import grid_of_problem
from sparsesmith.tuning.models import CostModels
from sparsesmith.tuning.tuner import Failure, Tuner, TuningLimits
from sparsesmith_proto.api import SourceName
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import Candidate, Outcome, Passed

FIRST_BATCH = 4
"""Small, so that the first graded candidates come soon."""

NEXT_BATCHES = 12
"""Small, too: every batch is chosen by what the ones before it have shown."""


def _allowed(task: TuningTask) -> Callable[[str], bool]:
    """Whether a program of that text may be proposed."""
    return allowed_texts(task.problem.workload)


class FamilyProposer:
    """Programs of the families, likely winners first, until more are not worth their time.

    Where values are fixed, families that exist for them alone come first, for half of the budget at most.
    """

    name: SourceName = "families"
    is_busy = False
    is_ready = False
    patience_s = 0.0

    def __init__(
        self, task: TuningTask, cost_models: CostModels, limit: int, limits: TuningLimits | None = None
    ) -> None:
        """`limits`: when the tuner has had enough, but for its candidates, which are `limit`. None: as ever."""
        self._task = task
        self._cost_models = cost_models
        self._limit = limit
        self._limits = limits or TuningLimits()
        self._waiting: Batch | None = None
        self._search: _Search | None = None

    async def propose(self, size: int, standing: Standing) -> Batch:
        """See Proposer. Never more than the tuner should choose before it hears of those before."""
        if self._waiting is None:
            self._waiting = await self._for_fixed_values()
            self._limit -= len(self._waiting)
        if self._waiting:
            batch, self._waiting = self._waiting[:size], self._waiting[size:]
            return batch
        most = NEXT_BATCHES
        if self._search is None:
            self._search = await asyncio.to_thread(_Search, self._task, self._cost_models, self._limit, self._limits)
            most = FIRST_BATCH
        self._search.read(standing)
        batch = await asyncio.to_thread(self._search.next_batch, min(size, most))
        if not batch:
            raise Exhausted
        return batch

    async def ready(self) -> None:
        """It is never busy."""

    async def close(self) -> None:
        """Nothing is held."""

    async def _for_fixed_values(self) -> Batch:
        if (values := self._task.problem.values) is None:
            return ()
        found = await asyncio.to_thread(fixed_value_families, self._task, values, (self._limit + 1) // 2)
        allows = _allowed(self._task)
        return tuple(each for each in found if allows(each.program))


Form = Literal["plain", "compressed"]
"""How a program stores values that are fixed."""


@dataclass(frozen=True)
class _Sent:
    """What a candidate carries: a program of the tuner's, in one of its forms."""

    instance: FamilyInstance
    form: Form


class _Search:
    """A tuner, and the candidates that carry its programs.

    Where values are fixed, programs go out as they are and compressed as far as they can be, until it is known which
    form is the faster on this matrix: fewer bytes do not pay where latency is all.
    """

    def __init__(self, task: TuningTask, cost_models: CostModels, limit: int, limits: TuningLimits) -> None:
        values = task.problem.values
        self._task = task
        self._cost_models = cost_models
        self._cost: CostModel = cost_models.expected(task.problem.workload.operation, task.device)
        grid = grid_of_problem(task.problem, task.order.options.reorder)
        self._tuner = Tuner(grid, self._cost, replace(limits, candidates=limit), _allowed(task))
        self._compressions = () if values is None else tuple(compressions(values))
        self._limit = limit
        self._sent: dict[str, _Sent] = {}
        self._lead_outcome: Outcome | None = None
        self._best_us: dict[Form, float] = {}
        self._num_read = 0

    def next_batch(self, size: int) -> Batch:
        size = min(size, self._limit - len(self._sent))
        forms = self._forms()
        while instances := self._tuner.next_batch(-(-size // len(forms))):
            wanted = (
                (instance, form, sent)
                for instance in instances
                for form, sent in self._in_forms(instance, forms)
                if not self._is_lead(instance, form, sent)
            )
            if batch := tuple(self._candidate(*each) for each in islice(wanted, size)):
                return batch
        return ()

    def _is_lead(self, instance: FamilyInstance, form: Form, sent: FamilyInstance) -> bool:
        """Whether a program was sent before the search began; what became of it counts as if it had been sent now."""
        lead = self._task.lead
        if lead is None or sent.written != lead.program:
            return False
        self._sent[lead.candidate_id] = _Sent(instance, form)
        if self._lead_outcome is not None:
            self._note(form, self._lead_outcome)
            self._tuner.tell(instance, _result([self._lead_outcome]))
        return True

    def read(self, standing: Standing) -> None:
        """Tell the tuner what became of its programs."""
        for report in standing.after(self._num_read):
            self._num_read += 1
            self._rely_on(self._cost_models.on(report.device.name, self._task.problem.workload.operation))
            self._tell(report)

    def _rely_on(self, cost: CostModel) -> None:
        if cost is not self._cost:
            self._cost = cost
            self._tuner.rely_on(cost)

    def _tell(self, report: EvaluationReport) -> None:
        """An instance is as fast as the faster of its forms; both are in one batch."""
        found: dict[str, tuple[FamilyInstance, list[Outcome]]] = {}
        for evaluation in report.evaluations:
            sent = self._sent.get(evaluation.candidate.candidate_id)
            if self._task.lead is not None and evaluation.candidate.candidate_id == self._task.lead.candidate_id:
                self._lead_outcome = evaluation.outcome
            if sent is not None:
                self._note(sent.form, evaluation.outcome)
                found.setdefault(sent.instance.program, (sent.instance, []))[1].append(evaluation.outcome)
        for instance, outcomes in found.values():
            self._tuner.tell(instance, _result(outcomes))

    def _note(self, form: Form, outcome: Outcome) -> None:
        if isinstance(outcome, Passed):
            self._best_us[form] = min(outcome.timing.median_us, self._best_us.get(form, math.inf))

    def _forms(self) -> tuple[Form, ...]:
        """Those that are worth sending."""
        if not self._compressions:
            return ("plain",)
        if len(self._best_us) < 2:
            return ("compressed", "plain")
        return (min(self._best_us, key=self._best_us.__getitem__),)

    def _in_forms(self, instance: FamilyInstance, forms: tuple[Form, ...]) -> Iterator[tuple[Form, FamilyInstance]]:
        """The instance in each form; once, and plain, where it cannot be compressed."""
        compressed = compressed_instance(instance, self._compressions)
        if compressed is instance:
            yield "plain", instance
            return
        for form in forms:
            yield form, compressed if form == "compressed" else instance

    def _candidate(self, instance: FamilyInstance, form: Form, sent: FamilyInstance) -> Candidate:
        name = f"{self._task.run_id}-f{len(self._sent)}"
        self._sent[name] = _Sent(instance, form)
        return sent.candidate(name)


def _result(outcomes: Sequence[Outcome]) -> float | Failure:
    times = [outcome.timing.median_us for outcome in outcomes if isinstance(outcome, Passed)]
    failures = [outcome.outcome for outcome in outcomes if not isinstance(outcome, Passed)]
    return min(times) if times else failures[0]
