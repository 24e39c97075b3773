"""Collects the records of the next update from the stream; acknowledges at once what will never be learned from."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from services.trainer.online.batch import RecordReader, Skip, UsableRecord
from sparsesmith.transport.stream import Delivery, RewardStream
from sparsesmith_proto.message import PolicyVersion

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

    def __init__(self, stream: RewardStream, reader: RecordReader, options: IntakeOptions) -> None:
        self._stream = stream
        self._reader = reader
        self._options = options

    def collect(
        self,
        version: PolicyVersion,
        used: Collection[str],
        must_stop: Callable[[], bool],
        turned_down: Collection[PolicyVersion] = (),
    ) -> Collected | None:
        """Wait for a full batch, or for `min_records` once `max_wait_s` passed since the first. None: must stop.

        What this consumer had before a restart and did not acknowledge comes first; `used` are ids of records that a
        checkpoint learned from; records of `turned_down` versions are dropped.
        """
        collected, used_ids = Collected(turned_down=frozenset(turned_down)), set(used)
        has_pending, first_at = True, 0.0
        while not must_stop():
            deliveries = self._pending(collected) if has_pending else self._new(collected)
            has_pending = has_pending and bool(deliveries)
            was_empty = not collected.records
            self._sort(deliveries, version, used_ids, collected)
            if was_empty and collected.records:
                first_at = time.monotonic()
            if self._is_complete(collected, time.monotonic() - first_at):
                return collected
        return None

    def acknowledge(self, collected: Collected) -> None:
        """These records are in a checkpoint: they will not come again."""
        self._stream.acknowledge(collected.entry_ids)

    def _is_complete(self, collected: Collected, waited_s: float) -> bool:
        options, count = self._options, len(collected.records)
        return count >= options.batch_records or (count >= options.min_records and waited_s >= options.max_wait_s)

    def _pending(self, collected: Collected) -> list[Delivery]:
        """Delivered before and not acknowledged; among those are the ones that are collected already."""
        deliveries = self._stream.pending(self._options.consumer, len(collected.records) + self._options.batch_records)
        return _unknown(deliveries, collected)

    def _new(self, collected: Collected) -> list[Delivery]:
        missing = self._options.batch_records - len(collected.records)
        deliveries = self._stream.read(self._options.consumer, missing, int(POLL_S * 1000))
        return _unknown(deliveries, collected)

    def _sort(self, deliveries: list[Delivery], version: PolicyVersion, used: set[str], collected: Collected) -> None:
        dropped: list[str] = []
        for delivery in deliveries:
            if len(collected.records) == self._options.batch_records:
                break
            record = delivery.record
            read: UsableRecord | Skip = (
                "already_used"
                if record.record_id in used
                else self._reader.read(record, version, collected.turned_down)
            )
            if isinstance(read, UsableRecord):
                collected.entry_ids.append(delivery.entry_id)
                collected.records.append(read)
                used.add(record.record_id)
            else:
                log.info("record %s is skipped: %s", record.record_id, read)
                collected.skipped[read] += 1
                dropped.append(delivery.entry_id)
        self._stream.acknowledge(dropped)


def _unknown(deliveries: list[Delivery], collected: Collected) -> list[Delivery]:
    return [delivery for delivery in deliveries if delivery.entry_id not in collected.entry_ids]
