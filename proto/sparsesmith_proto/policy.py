"""Hop trainer -> generator: new weights are ready."""

from pydantic import Field

from sparsesmith_proto.message import Digest, Message, PolicyVersion


class PolicyAnnouncement(Message):
    """Weights as one safetensors file on a volume that trainer and generator share."""

    version: PolicyVersion
    weights: str = Field(min_length=1)
    """File name inside the shared policy folder (no directories)."""
    sha256: Digest
    step: int = Field(ge=0)
    """PPO updates behind these weights."""
    metrics: dict[str, float]
    """The trainer's measures of the update: policy_loss, value_loss, kl, clip_fraction, mean_reward, ..."""
    created_at: str
    """UTC, ISO 8601."""
