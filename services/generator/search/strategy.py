"""What a search strategy is."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from services.generator.sampling import PolicySampler
from services.generator.task import TuningTask
from sparsesmith_proto.kernel import Candidate

Batch = tuple[Candidate, ...]


@dataclass(frozen=True)
class Sources:
    """Where strategies get candidates from."""

    sampler: PolicySampler | None
    """None: the service runs without a policy."""
    batch_candidates: int
    samples_in_flight: int


class Strategy(Protocol):
    """Yields candidates in batches, the most promising early, at most `limit` of them.

    It is asked for the next batch when the evaluators have room for it, and closed when the budget is spent.
    """

    def __call__(self, task: TuningTask, sources: Sources, limit: int) -> AsyncIterator[Batch]: ...
