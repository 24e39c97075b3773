"""How many samples may be begun, so that none is too old once it is learned from.

    room = (bound + version + 1) x batch - accepted - running

as in AReaL (Fu et al. 2025, section 5.1). What was accepted and is not in the stream any more was learned from, a
batch a version: that leaves `waiting` records, and the version cancels. Records are not dropped for their age where
this is kept: who asks for samples waits instead.
"""

from dataclasses import dataclass
from typing import Protocol

from sparsesmith_proto.policy import PolicyAnnouncement, PolicyStanding


class Waiting(Protocol):
    """Records that nobody learned from yet: `sparsesmith.transport.stream.RewardStream`."""

    def length(self) -> int: ...


class Versions(Protocol):
    """What was announced and what serves: `sparsesmith.transport.policy_channel.PolicyChannel`."""

    def latest(self) -> PolicyAnnouncement | None: ...

    def standing(self) -> PolicyStanding: ...


@dataclass(frozen=True)
class Admission:
    """Asked before samples are begun. Raises Unavailable without Redis."""

    stream: Waiting
    channel: Versions
    batch_records: int
    """Of the trainer, as its setting of that name."""
    max_policy_age: int
    """Versions; likewise."""

    def room(self, running: int) -> int:
        """Samples that may be begun while `running` others are sampled or graded; below 1: none.

        While a version waits for its canary samples are still taken from the one before, a version older than the
        trainer is: its batch counts as not yet learned from.
        """
        batches = self.max_policy_age + 1 - self._is_a_version_under_way()
        return batches * self.batch_records - self.stream.length() - running

    def _is_a_version_under_way(self) -> bool:
        newest = self.channel.latest()
        return newest is not None and newest.version > self.channel.standing().newest_judged
