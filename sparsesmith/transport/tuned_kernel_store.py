"""Answers that were found before, by what was asked and the device they were measured on: generator to generator."""

from sparsesmith.transport.connection import Redis, answering

_PREFIX = "sparsesmith:tuned:"
_CURRENT_DEVICE = "sparsesmith:device"


class TunedKernelStore:
    """Texts by (question, device). The device that reported last is the one that answers are looked up for."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def keep(self, question: str, device: str, answer: str, ttl_s: int) -> None:
        """Replaces what is there, and makes this the current device. Raises Unavailable."""
        key = _PREFIX + question
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            pipeline.hset(key, device, answer)
            pipeline.expire(key, ttl_s)
            pipeline.set(_CURRENT_DEVICE, device)
            pipeline.execute()

    def find(self, question: str) -> str | None:
        """What is kept for the current device. Raises Unavailable."""
        with answering():
            device = self._connection.get(_CURRENT_DEVICE)
            found = None if device is None else self._connection.hget(_PREFIX + question, device)
        return None if found is None else bytes(found).decode()
