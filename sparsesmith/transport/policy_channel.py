"""New weights from trainer to generator: both ends of the announcements. The newest is what counts."""

import logging

import redis
from pydantic import ValidationError

from sparsesmith.transport.connection import Redis, answering
from sparsesmith_proto.policy import PolicyAnnouncement

log = logging.getLogger(__name__)

_KEY = "sparsesmith:policy:latest"


class PolicyChannel:
    """One key holds the newest announcement; versions only rise."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def announce(self, announcement: PolicyAnnouncement) -> bool:
        """Make this the newest; False where one at least as new is there already. Raises Unavailable."""
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            while True:
                try:
                    pipeline.watch(_KEY)
                    known = _parse(pipeline.get(_KEY))
                    if known is not None and known.version >= announcement.version:
                        return False
                    pipeline.multi()
                    pipeline.set(_KEY, announcement.model_dump_json())
                    pipeline.execute()
                    return True
                except redis.exceptions.WatchError:
                    continue

    def latest(self) -> PolicyAnnouncement | None:
        """The newest announcement; None before the first. Raises Unavailable."""
        with answering():
            return _parse(self._connection.get(_KEY))


def _parse(known: bytes | None) -> PolicyAnnouncement | None:
    """None also for an announcement of another version of the contract: the next one takes its place."""
    try:
        return None if known is None else PolicyAnnouncement.model_validate_json(known)
    except ValidationError as error:
        log.error("the policy announcement is not of this version and does not count: %s", error)
        return None
