"""What a search strategy is."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.generator.policy.sampling import PolicySampler
from services.generator.task import TuningTask
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import Candidate

Batch = tuple[Candidate, ...]


@dataclass(frozen=True)
class Sources:
    """Where strategies get candidates from."""

    sampler: PolicySampler | None
    """None: the service runs without a policy."""
    batch_candidates: int
    samples_in_flight: int
    cost_models: CostModels = field(default_factory=CostModels)


class Findings:
    """What evaluators have said of a task's candidates so far; reports only ever join at the end."""

    def __init__(self) -> None:
        self._reports: list[EvaluationReport] = []

    def add(self, report: EvaluationReport) -> None:
        self._reports.append(report)

    def after(self, num_read: int) -> Sequence[EvaluationReport]:
        """Reports that came after the first `num_read`."""
        return self._reports[num_read:]


class Strategy(Protocol):
    """Yields candidates in batches, the most promising early, at most `limit` of them.

    It is asked for the next batch when the evaluators have room for it, and closed when the budget is spent. `findings`
    holds what was graded until then, candidates of other strategies included; nothing has to be waited for.
    """

    def __call__(self, task: TuningTask, sources: Sources, limit: int, findings: Findings) -> AsyncIterator[Batch]: ...
