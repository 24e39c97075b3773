"""One trainer a stream: two would take each other's records and publish versions of the same number.

The key names the trainer and expires; only the holder renews it. A trainer that is started again on its state folder
is the same one. Not protected against: a Redis that lost its data while both run; the later one to renew then ends.
"""

from sparsesmith.errors import Conflict
from sparsesmith.transport.connection import Redis, answering

KEY = "sparsesmith:trainer:lease"
LEASE_S = 600
"""After so long without a sign another trainer may take over."""


class TrainerLease:
    """Of the trainer with this identity. Methods raise Unavailable without Redis."""

    def __init__(self, connection: Redis, identity: str) -> None:
        self._connection = connection
        self._identity = identity.encode()

    def hold(self) -> None:
        """Take or renew it. Raises Conflict where another trainer holds it."""
        with answering():
            if self._connection.set(KEY, self._identity, nx=True, ex=LEASE_S):
                return
            holder = self._connection.get(KEY)
            if holder not in (None, self._identity):
                raise Conflict(
                    f"another trainer, {holder.decode()}, learns from this stream; its lease ends "
                    f"{max(0, self._connection.ttl(KEY))} s from now unless it is renewed",
                    field="state_dir",
                    value=holder.decode(),
                )
            self._connection.set(KEY, self._identity, ex=LEASE_S)

    def release(self) -> None:
        """At the end."""
        with answering():
            if self._connection.get(KEY) == self._identity:
                self._connection.delete(KEY)
