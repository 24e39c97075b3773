"""Records that wait for the others of their prompt: only then do their rewards compare.

Short programs are sampled and graded first. A batch that takes records as they come splits groups, and holds the short
programs of one group against none of its long ones.
"""

from dataclasses import dataclass, field

from services.trainer.online.batch import UsableRecord
from sparsesmith_proto.kernel import Sampled
from sparsesmith_proto.message import PolicyVersion
from sparsesmith_proto.reward import RewardRecord

GroupName = tuple[str, str]
"""Of the prompt, and the kind of device that graded."""


@dataclass
class Group:
    """What came of one prompt so far."""

    size: int | None
    """Samples that are taken; None: not known."""
    last_at: float = 0.0
    """When the newest came, on a monotonic clock."""
    num_seen: int = 0
    """Also of those that nobody learns from."""
    entry_ids: list[str] = field(default_factory=list)
    records: list[UsableRecord] = field(default_factory=list)

    @property
    def first_version(self) -> PolicyVersion:
        """The oldest that any of its records was begun with."""
        return min(each.sampled.first_version for each in self.records)

    def is_ripe(self, now: float, patience_s: float) -> bool:
        """All were seen, or none came for so long: the search ended early, or samples were lost."""
        return self.size is None or self.num_seen >= self.size or now - self.last_at >= patience_s


class Groups:
    """Of the records that were delivered and not acknowledged."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._groups: dict[GroupName, Group] = {}

    def add(self, entry_id: str, record: UsableRecord, now: float) -> None:
        """One that can be learned from."""
        group = self._seen(record.record, now)
        if group is not None:
            group.entry_ids.append(entry_id)
            group.records.append(record)

    def skip(self, record: RewardRecord, now: float) -> None:
        """One that cannot be: the others need not wait for it."""
        self._seen(record, now)

    def ripe(self, now: float) -> list[Group]:
        """Groups whose records compare: those of older versions first, which would be too old soonest; then in the
        order in which their first records came."""
        ripe = [each for each in self._groups.values() if each.records and each.is_ripe(now, self._patience_s)]
        return sorted(ripe, key=lambda each: each.first_version)

    @property
    def num_records(self) -> int:
        """That wait, ripe or not."""
        return sum(len(each.records) for each in self._groups.values())

    @property
    def entry_ids(self) -> set[str]:
        return {entry_id for each in self._groups.values() for entry_id in each.entry_ids}

    def _seen(self, record: RewardRecord, now: float) -> Group | None:
        origin = record.candidate.origin
        if not isinstance(origin, Sampled):
            return None
        group = self._groups.setdefault((origin.group, record.device.kind), Group(origin.group_size))
        group.num_seen += 1
        group.last_at = max(group.last_at, now)
        return group
