"""Collects the records of the next update from the stream; acknowledges at once what will never be learned from.

A batch is made of whole groups: of prompts whose samples were all seen, or of which none came for `max_wait_s`.
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from services.trainer.online.batch import EXPECTED, LAWFUL, RecordReader, Skip, UsableRecord
from services.trainer.online.groups import Group, Groups
from services.trainer.online.wins import Wins
from sparsesmith.transport.stream import Delivery, RewardStream
from sparsesmith_proto.message import PolicyVersion
from sparsesmith_proto.reward import RewardRecord

log = logging.getLogger(__name__)

POLL_S = 1.0
"""Longest wait between two looks at whether the service must stop."""


@dataclass(frozen=True)
class IntakeOptions:
    """When a batch is complete; the fields of `TrainerSettings` that concern it."""

    consumer: str = "trainer"
    batch_records: int = 32
    min_records: int = 8
    max_wait_s: float = 20.0


@dataclass
class Collected:
    """Records of one update, in order of arrival, not acknowledged yet."""

    entry_ids: list[str] = field(default_factory=list)
    records: list[UsableRecord] = field(default_factory=list)
    skipped: Counter[Skip] = field(default_factory=Counter)
    """Records that came meanwhile and were dropped."""
    turned_down: frozenset[PolicyVersion] = frozenset()
    """Versions whose records are dropped."""

    @property
    def record_ids(self) -> list[str]:
        return [each.record.record_id for each in self.records]


class RecordIntake:
    """One consumer of the reward stream. Methods raise Unavailable without Redis."""

    def __init__(
        self,
        stream: RewardStream,
        reader: RecordReader,
        options: IntakeOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._reader = reader
        self._options = options
        self._clock = clock
        self._arrived: dict[str, float] = {}
        """When an entry that is not acknowledged was first seen: batches come and go while a group waits."""
        self.wins = Wins()
        self._others: list[str] = []
        """Entries of programs that the policy did not write: acknowledged with the next batch, whose checkpoint holds
        what was kept of them."""

    def collect(
        self,
        version: PolicyVersion,
        used: Collection[str],
        must_stop: Callable[[], bool],
        turned_down: Collection[PolicyVersion] = (),
    ) -> Collected | None:
        """Wait for a full batch of whole groups, or for `min_records` once `max_wait_s` passed since the first. None:
        must stop.

        What this consumer had before a restart and did not acknowledge comes first; `used` are ids of records that a
        checkpoint learned from; records of `turned_down` versions are dropped.
        """
        groups, used_ids = Groups(self._options.max_wait_s), set(used)
        skipped: Counter[Skip] = Counter()
        first_at, has_pending, warn_at = 0.0, True, self._options.batch_records
        while not must_stop():
            deliveries = self._pending(groups) if has_pending else self._new(groups)
            has_pending = has_pending and bool(deliveries)
            was_empty = not groups.num_records
            skipped += self._sorted(deliveries, version, used_ids, turned_down, groups)
            if not groups.num_records and (wasted := _num_wasted(skipped)) >= warn_at:
                warn_at = 2 * wasted
                log.warning("no record that came can be learned from; skipped: %s", dict(skipped))
            if was_empty and groups.num_records:
                first_at = self._clock()
            now = self._clock()
            ripe = groups.ripe(now)
            if self._is_complete(sum(len(each.records) for each in ripe), now - first_at):
                return self._batch(ripe, skipped, turned_down)
        return None

    def _batch(
        self, ripe: Sequence[Group], skipped: Counter[Skip], turned_down: Collection[PolicyVersion]
    ) -> Collected:
        """Whole groups, until there are enough records; the others are not acknowledged and come again."""
        collected = Collected(list(self._others), skipped=skipped, turned_down=frozenset(turned_down))
        self._others.clear()
        for group in ripe:
            if len(collected.records) < self._options.batch_records:
                collected.entry_ids += group.entry_ids
                collected.records += group.records
        return collected

    def recall(self, wins: Sequence[str]) -> None:
        """What a checkpoint held of programs to imitate; records whose matrix is gone are left out."""
        examples = (self._reader.example(RewardRecord.model_validate_json(text)) for text in wins)
        self.wins.take(each for each in examples if isinstance(each, UsableRecord))

    def acknowledge(self, collected: Collected) -> None:
        """These records are in a checkpoint: they will not come again."""
        self._stream.acknowledge(collected.entry_ids)
        self._forget(collected.entry_ids)

    def _forget(self, entry_ids: Sequence[str]) -> None:
        for entry_id in entry_ids:
            self._arrived.pop(entry_id, None)

    def _is_complete(self, count: int, waited_s: float) -> bool:
        options = self._options
        return count >= options.batch_records or (count >= options.min_records and waited_s >= options.max_wait_s)

    def _pending(self, groups: Groups) -> list[Delivery]:
        """Delivered before and not acknowledged; among those are the ones that wait already."""
        num_known = groups.num_records + len(self._others)
        deliveries = self._stream.pending(self._options.consumer, num_known + self._options.batch_records)
        return self._unknown(deliveries, groups)

    def _new(self, groups: Groups) -> list[Delivery]:
        deliveries = self._stream.read(self._options.consumer, self._options.batch_records, int(POLL_S * 1000))
        return self._unknown(deliveries, groups)

    def _unknown(self, deliveries: Sequence[Delivery], groups: Groups) -> list[Delivery]:
        known = groups.entry_ids | set(self._others)
        return [delivery for delivery in deliveries if delivery.entry_id not in known]

    def _sorted(
        self,
        deliveries: Sequence[Delivery],
        version: PolicyVersion,
        used: set[str],
        turned_down: Collection[PolicyVersion],
        groups: Groups,
    ) -> Counter[Skip]:
        """Into groups; what will never be learned from is acknowledged, and counted by reason."""
        now, dropped = self._clock(), defaultdict[Skip, list[Delivery]](list)
        skipped: Counter[Skip] = Counter({"malformed": self._stream.take_malformed()})
        for delivery in deliveries:
            record = delivery.record
            read: UsableRecord | Skip = (
                "already_used" if record.record_id in used else self._reader.read(record, version, turned_down)
            )
            if read == "not_sampled" and self._imitates(delivery):
                self._others.append(delivery.entry_id)
            elif isinstance(read, UsableRecord):
                self._imitates(delivery)
                groups.add(delivery.entry_id, read, self._arrived.setdefault(delivery.entry_id, now))
                used.add(record.record_id)
            else:
                log.info("record %s is skipped: %s", record.record_id, read)
                groups.skip(record, now)
                self._forget([delivery.entry_id])
                skipped[read] += 1
                if read in LAWFUL:
                    dropped[read].append(delivery)
                else:
                    self._stream.bury(delivery, read)
        for reason, deliveries_of in dropped.items():
            self._stream.drop(deliveries_of, reason)
        return Counter({reason: count for reason, count in skipped.items() if count})

    def _imitates(self, delivery: Delivery) -> bool:
        """Whether a program is of use as an example; the best of each workload are kept."""
        if not self._reader.imitates:
            return False
        example = self._reader.example(delivery.record)
        return isinstance(example, UsableRecord) and self.wins.offer(example)


def _num_wasted(skipped: Counter[Skip]) -> int:
    """Records that were skipped for a reason that is not `EXPECTED`."""
    return sum(count for reason, count in skipped.items() if reason not in EXPECTED)
