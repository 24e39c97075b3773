"""The audit log: who ran what. A line is written with what it tells of, and nothing changes it; the oldest go."""

from sparsesmith.transport.connection import Pipeline, Redis, answering
from sparsesmith_proto.keys import AuditEntry

_LOG = "sparsesmith:audit"
MAX_ENTRIES = 100_000


def write_entry(pipeline: Pipeline, entry: AuditEntry) -> None:
    """As part of a transaction."""
    pipeline.xadd(_LOG, {"entry": entry.model_dump_json()}, maxlen=MAX_ENTRIES, approximate=False)


class AuditLog:
    """For reading."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def newest(self, limit: int) -> list[AuditEntry]:
        """Up to `limit` lines, the newest last. Raises Unavailable."""
        with answering():
            entries = self._connection.xrevrange(_LOG, count=limit)
        return [AuditEntry.model_validate_json(fields[b"entry"]) for _, fields in reversed(entries)]
