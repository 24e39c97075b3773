"""Metrics of evaluators and trainer on their way to the generator, whose `/metrics` shows those of all.

Evaluators reach Redis and nothing else, and there are several on a machine: nobody has to open a port or to know who
lives. What a worker publishes is forgotten a minute after it has fallen silent.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, generate_latest

from sparsesmith.errors import Unavailable
from sparsesmith.transport.connection import Redis, answering, text_of, texts_of

log = logging.getLogger(__name__)

_WORKERS = "sparsesmith:metrics"
_PREFIX = "sparsesmith:metrics:"
SILENT_AFTER_S = 60
PUBLISH_EVERY_S = 5.0
MAX_TEXT_BYTES = 2**20
"""Of one worker; longer ones are left out."""


class MetricsChannel:
    """Prometheus texts by worker."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def publish(self, worker: str, text: bytes) -> None:
        """Replaces what the worker published before. Raises Unavailable."""
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            pipeline.set(_PREFIX + worker, text, ex=SILENT_AFTER_S)
            pipeline.zadd(_WORKERS, {worker: time.time() + SILENT_AFTER_S})
            pipeline.execute()

    def latest(self) -> dict[str, str]:
        """Texts of the workers that were heard of lately. Raises Unavailable."""
        with answering():
            self._connection.zremrangebyscore(_WORKERS, "-inf", time.time())
            workers = texts_of(self._connection, _WORKERS, self._connection.zrange(_WORKERS, 0, -1)) or []
            texts = self._connection.mget([_PREFIX + worker for worker in workers]) if workers else []
        short = {
            worker: text_of(text)
            for worker, text in zip(workers, texts, strict=True)
            if text is not None and len(text) <= MAX_TEXT_BYTES
        }
        return {worker: text for worker, text in short.items() if text is not None}


@contextmanager
def published(
    registry: CollectorRegistry, channel: MetricsChannel, worker: str, every_s: float = PUBLISH_EVERY_S
) -> Iterator[None]:
    """Publishes a registry from a thread while the context lasts, and once at its end. Outages are passed over."""
    done = threading.Event()

    def publish() -> None:
        while not done.wait(every_s):
            _publish(registry, channel, worker)

    _publish(registry, channel, worker)
    thread = threading.Thread(target=publish, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        _publish(registry, channel, worker)


def _publish(registry: CollectorRegistry, channel: MetricsChannel, worker: str) -> None:
    try:
        channel.publish(worker, generate_latest(registry))
    except Unavailable as error:
        log.debug("metrics are not published: %s", error)
