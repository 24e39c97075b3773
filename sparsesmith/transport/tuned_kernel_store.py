"""Answers that were found before, by what was asked and the device they were measured on: generator to generator.

sparsesmith:tuned:QUESTION   hash: device with its toolchain -> answer
sparsesmith:devices          hash: kind of GPU -> its device with the toolchain that it reported last
sparsesmith:device           the device that reported last of all
"""

from collections.abc import Sequence

from sparsesmith.transport.connection import Redis, answering

_PREFIX = "sparsesmith:tuned:"
_DEVICES = "sparsesmith:devices"
_CURRENT_DEVICE = "sparsesmith:device"


class TunedKernelStore:
    """Texts by (question, device). Of a kind of GPU the device that reported last is the one that answers are looked up
    for."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def keep(self, question: str, gpu: str, device: str, answer: str, ttl_s: int) -> None:
        """Replaces what is there, and makes this the kind's current device. Raises Unavailable."""
        key = _PREFIX + question
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            pipeline.hset(key, device, answer)
            pipeline.expire(key, ttl_s)
            pipeline.hset(_DEVICES, gpu, device)
            pipeline.set(_CURRENT_DEVICE, device)
            pipeline.execute()

    def find(self, question: str, gpus: Sequence[str]) -> str | None:
        """What is kept for one of these kinds, the one that reported last before others; of no kinds, for the device
        that reported last. Raises Unavailable."""
        with answering():
            current = self._connection.get(_CURRENT_DEVICE)
            told = self._connection.hmget(_DEVICES, gpus) if gpus else [current]
            devices = sorted({device for device in told if device is not None}, key=lambda device: device != current)
            found = self._connection.hmget(_PREFIX + question, devices) if devices else []
        return next((bytes(answer).decode() for answer in found if answer is not None), None)
