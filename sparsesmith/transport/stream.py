"""Reward records from evaluators to the trainer: both ends of a Redis stream with one consumer group.

A record is delivered until it is acknowledged. The stream is bounded: while no trainer reads, the oldest records go.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import redis
from pydantic import ValidationError

from sparsesmith.transport.connection import MAX_BLOCK_MS, Pipeline, Redis, answering
from sparsesmith_proto.reward import RewardRecord

log = logging.getLogger(__name__)

STREAM = "sparsesmith:rewards"
GROUP = "trainer"
DEAD_LETTERS = "sparsesmith:rewards:dead"
"""Records that hint at a defect, each with the reason why nobody learned from it, for whoever looks for that."""
MAX_DEAD_LETTERS = 1000
"""The newest stay."""
_SEEN_PREFIX = "sparsesmith:rewards:seen:"
"""A key a record, for as long as its evaluator might publish it again: NO_FATE, or why nobody learned from it."""
NO_FATE = "1"
"""Of a record that waits, or that a checkpoint of the trainer names."""
_FIELD = b"record"
_REASON = b"reason"

Entry = tuple[bytes, dict[bytes, bytes] | None]
"""Id and fields; no fields: trimmed from the stream."""


@dataclass(frozen=True)
class Delivery:
    """One record as the stream delivered it; acknowledge it by its entry id."""

    entry_id: str
    record: RewardRecord


class RewardStream:
    """Publish at one end; read, use, and only then acknowledge at the other."""

    def __init__(
        self, connection: Redis, max_records: int = 100_000, seen_ttl_s: int = 24 * 3600, claim_after_s: float = 600
    ) -> None:
        """A record of a consumer that did not ask for it again within `claim_after_s` goes to another consumer."""
        self._connection = connection
        self._max_records = max_records
        self._seen_ttl_s = seen_ttl_s
        self._claim_after_ms = int(claim_after_s * 1000)
        self._claim_cursor = "0-0"
        self._own_cursor: str | None = "0-0"
        """How far the consumer's records from before its restart were read; None: all were."""
        self._held: set[str] = set()
        """Entries that were delivered here and not acknowledged."""
        self._num_malformed = 0

    def publish(self, record: RewardRecord) -> bool:
        """Append a record once; False where one of that id was published before. Raises Unavailable."""
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            seen = _SEEN_PREFIX + record.record_id
            while True:
                try:
                    pipeline.watch(seen)
                    if pipeline.exists(seen):
                        return False
                    pipeline.multi()
                    pipeline.set(seen, NO_FATE, ex=self._seen_ttl_s)
                    fields = {_FIELD: record.model_dump_json().encode()}
                    pipeline.xadd(STREAM, fields, maxlen=self._max_records, approximate=True)
                    pipeline.execute()
                    return True
                except redis.exceptions.WatchError:
                    continue

    def read(self, consumer: str, count: int, block_ms: int) -> list[Delivery]:
        """Up to `count` records that this object did not deliver before: those that the consumer of this name had when
        it ended, those of consumers that are long silent, then new ones, waiting up to `block_ms` for the first.

        Raises Unavailable.
        """
        with answering():
            self._ensure_group()
            entries = self._left_behind(consumer, count) or self._claimed(consumer, count)
            if not entries:
                block = min(block_ms, MAX_BLOCK_MS) or None
                replies = self._connection.xreadgroup(GROUP, consumer, {STREAM: ">"}, count=count, block=block)
                entries = _entries(replies)
            return self._deliveries(entries)

    def _left_behind(self, consumer: str, count: int) -> list[Entry]:
        """What the consumer had not acknowledged when it was started anew."""
        while self._own_cursor is not None:
            replies = self._connection.xreadgroup(GROUP, consumer, {STREAM: self._own_cursor}, count=count)
            entries = _entries(replies)
            self._own_cursor = entries[-1][0].decode() if entries else None
            if fresh := self._not_held(entries):
                return fresh
        return []

    def _claimed(self, consumer: str, count: int) -> list[Entry]:
        """What others left; a part of the pending list a call."""
        cursor, entries, *_ = self._connection.xautoclaim(
            STREAM, GROUP, consumer, min_idle_time=self._claim_after_ms, start_id=self._claim_cursor, count=count
        )
        self._claim_cursor = cursor.decode()
        return self._not_held(entries)

    def _not_held(self, entries: list[Entry]) -> list[Entry]:
        return [entry for entry in entries if entry[0].decode() not in self._held]

    def pending(self, consumer: str, count: int) -> list[Delivery]:
        """Records that were delivered to this consumer and not acknowledged: read these first after a restart."""
        with answering():
            self._ensure_group()
            replies = self._connection.xreadgroup(GROUP, consumer, {STREAM: "0"}, count=count)
        return [delivery for _, entries in replies or [] for delivery in self._deliveries(entries)]

    def acknowledge(self, entry_ids: list[str]) -> None:
        """The records were used by a checkpoint that is on disk: they will not come again, and are dropped."""
        if not entry_ids:
            return
        self._held.difference_update(entry_ids)
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            pipeline.xack(STREAM, GROUP, *entry_ids)
            pipeline.xdel(STREAM, *entry_ids)
            pipeline.execute()

    def drop(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """Acknowledged, and the reason noted with it: nobody will learn from these records, which is in order."""
        if not deliveries:
            return
        entry_ids = [each.entry_id for each in deliveries]
        self._held.difference_update(entry_ids)
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            for each in deliveries:
                _note(pipeline, each.record.record_id, reason)
            pipeline.xack(STREAM, GROUP, *entry_ids)
            pipeline.xdel(STREAM, *entry_ids)
            pipeline.execute()

    def bury(self, delivery: Delivery, reason: str) -> None:
        """Acknowledged, and kept among the dead letters: nobody will learn from the record."""
        content = delivery.record.model_dump_json().encode()
        self._bury(delivery.entry_id, content, reason, delivery.record.record_id)

    def fates(self) -> dict[str, str]:
        """Of each record that was published lately: NO_FATE, or why nobody learned from it. Reads all of the keys."""
        with answering():
            names = [bytes(each) for each in self._connection.scan_iter(f"{_SEEN_PREFIX}*", count=1000)]
            values = self._connection.mget(names) if names else []
        told = zip(names, values, strict=True)
        return {name.decode().removeprefix(_SEEN_PREFIX): value.decode() for name, value in told if value is not None}

    def waiting(self) -> list[str]:
        """Ids of the records in the stream, delivered or not, oldest first."""
        with answering():
            entries = self._connection.xrange(STREAM)
        records = [_record(entry_id, fields) for entry_id, fields in entries]
        return [record.record_id for record in records if record is not None]

    def take_malformed(self) -> int:
        """Entries since the last call that were no records; they are among the dead letters."""
        count, self._num_malformed = self._num_malformed, 0
        return count

    def dead_letters(self) -> list[tuple[str, bytes]]:
        """Reason and what was published, oldest first."""
        with answering():
            entries = self._connection.xrange(DEAD_LETTERS)
        return [(fields[_REASON].decode(), fields[_FIELD]) for _, fields in entries]

    def _bury(self, entry_id: str, content: bytes, reason: str, record_id: str | None = None) -> None:
        self._held.discard(entry_id)
        fields = {_FIELD: content, _REASON: reason.encode()}
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            if record_id is not None:
                _note(pipeline, record_id, reason)
            pipeline.xadd(DEAD_LETTERS, fields, maxlen=MAX_DEAD_LETTERS, approximate=True)
            pipeline.xack(STREAM, GROUP, entry_id)
            pipeline.xdel(STREAM, entry_id)
            pipeline.execute()

    def length(self) -> int:
        """Records in the stream, delivered or not."""
        with answering():
            return int(self._connection.xlen(STREAM))

    def _ensure_group(self) -> None:
        try:
            self._connection.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        except redis.exceptions.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def _deliveries(self, entries: list[Entry]) -> list[Delivery]:
        """Parsed entries; what was trimmed from the stream is dropped, what does not parse is buried."""
        parsed = [(entry_id.decode(), fields, _record(entry_id, fields)) for entry_id, fields in entries]
        self.acknowledge([entry_id for entry_id, fields, _ in parsed if not fields])
        for entry_id, fields, record in parsed:
            if fields and record is None:
                self._num_malformed += 1
                self._bury(entry_id, fields.get(_FIELD, b""), "malformed")
        deliveries = [Delivery(entry_id, record) for entry_id, _, record in parsed if record is not None]
        self._held.update(delivery.entry_id for delivery in deliveries)
        return deliveries


def _note(pipeline: Pipeline, record_id: str, reason: str) -> None:
    """Where it is still known that the record was published."""
    pipeline.set(_SEEN_PREFIX + record_id, reason, xx=True, keepttl=True)


def _entries(replies: list[tuple[bytes, list[Entry]]] | None) -> list[Entry]:
    """Of a read of one stream."""
    return [entry for _, entries in replies or [] for entry in entries]


def _record(entry_id: bytes, fields: dict[bytes, bytes] | None) -> RewardRecord | None:
    """None for an entry that is gone, or of another version of the contract, which is logged."""
    if not fields:
        return None
    try:
        return RewardRecord.model_validate_json(fields[_FIELD])
    except (ValidationError, KeyError) as error:
        log.error("reward record %s is not of this version and is dropped: %s", entry_id.decode(), error)
        return None
