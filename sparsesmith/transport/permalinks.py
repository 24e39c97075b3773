"""Secrets of jobs' permalinks: whoever has a job's may look at it without a key.

Each is made of the job's id by a secret that lies in Redis, so none is stored. Whoever deletes `sparsesmith:permalinks`
makes all of them void.
"""

import base64
import hashlib
import hmac
import secrets

from sparsesmith.transport.connection import Redis, answering

_SECRET = "sparsesmith:permalinks"
SECRET_BYTES = 32
LINK_BYTES = 24


class Permalinks:
    """Of all generators on one Redis."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def secret_of(self, job_id: str) -> str:
        """32 letters, digits and `_-`. Raises Unavailable."""
        mac = hmac.digest(self._key(), job_id.encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(mac[:LINK_BYTES]).decode()

    def opens(self, job_id: str, secret: str) -> bool:
        """Raises Unavailable."""
        return hmac.compare_digest(self.secret_of(job_id).encode(), secret.encode())

    def _key(self) -> bytes:
        with answering():
            self._connection.set(_SECRET, secrets.token_bytes(SECRET_BYTES), nx=True)
            return bytes(self._connection.get(_SECRET))
