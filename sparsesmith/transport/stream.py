"""Reward records from evaluators to the trainer: both ends of a Redis stream with one consumer group."""

import logging
from dataclasses import dataclass

import redis
from pydantic import ValidationError

from sparsesmith.transport.connection import Redis, answering
from sparsesmith_proto.reward import RewardRecord

log = logging.getLogger(__name__)

STREAM = "sparsesmith:rewards"
GROUP = "trainer"
_SEEN_PREFIX = "sparsesmith:rewards:seen:"
_FIELD = b"record"


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
        self._connection = connection
        self._max_records = max_records
        self._seen_ttl_s = seen_ttl_s
        self._claim_after_ms = int(claim_after_s * 1000)

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
                    pipeline.set(seen, b"1", ex=self._seen_ttl_s)
                    fields = {_FIELD: record.model_dump_json().encode()}
                    pipeline.xadd(STREAM, fields, maxlen=self._max_records, approximate=True)
                    pipeline.execute()
                    return True
                except redis.exceptions.WatchError:
                    continue

    def read(self, consumer: str, count: int, block_ms: int) -> list[Delivery]:
        """Up to `count` records: first those this consumer had and never acknowledged before a restart of another
        consumer made them free, then new ones, waiting up to `block_ms` for the first. Raises Unavailable."""
        with answering():
            self._ensure_group()
            claimed = self._connection.xautoclaim(
                STREAM, GROUP, consumer, min_idle_time=self._claim_after_ms, start_id="0-0", count=count
            )
            deliveries = self._deliveries(claimed[1])
            if deliveries:
                return deliveries
            replies = self._connection.xreadgroup(GROUP, consumer, {STREAM: ">"}, count=count, block=block_ms)
        return [delivery for _, entries in replies or [] for delivery in self._deliveries(entries)]

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
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            pipeline.xack(STREAM, GROUP, *entry_ids)
            pipeline.xdel(STREAM, *entry_ids)
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

    def _deliveries(self, entries: list[tuple[bytes, dict[bytes, bytes] | None]]) -> list[Delivery]:
        """Parsed entries; one that does not parse (another version of the contract) is logged and dropped."""
        deliveries = []
        for entry_id, fields in entries:
            if not fields:
                continue
            try:
                record = RewardRecord.model_validate_json(fields[_FIELD])
            except (ValidationError, KeyError) as error:
                log.error("reward record %s is not of this version and is dropped: %s", entry_id.decode(), error)
                self.acknowledge([entry_id.decode()])
                continue
            deliveries.append(Delivery(entry_id.decode(), record))
        return deliveries
