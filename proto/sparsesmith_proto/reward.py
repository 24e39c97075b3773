"""Hop evaluator -> trainer: one record a sampled candidate, on a Redis stream."""

from pydantic import Field

from sparsesmith_proto.kernel import Candidate, DeviceDescription, Outcome, Workload
from sparsesmith_proto.message import Identifier, Message, Microseconds


class RewardRecord(Message):
    """Candidate, what became of it, and its reward under each scheme (see sparsesmith.reward)."""

    record_id: Identifier
    """`<job_id>:<candidate_id>`; a job graded twice gives the same identifiers, so a record is used once."""
    workload: Workload
    candidate: Candidate
    outcome: Outcome
    best_baseline_us: Microseconds
    default_baseline_us: Microseconds
    rewards: dict[str, float] = Field(min_length=1)
    """Scheme name (`milestone`, `improvement`, `paper`, ...) -> reward."""
    rival_us: Microseconds | None = None
    """What `improvement` is an improvement over; None in records from before that scheme."""
    device: DeviceDescription
