"""Connections to Redis (or Valkey): one address for all services."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from sparsesmith.errors import InvalidOption, Unavailable

log = logging.getLogger(__name__)

Redis = Any
"""A `redis.Redis`: a connection pool, safe to share between threads, whose replies are bytes, as RQ needs them.
(redis-py annotates replies as bytes or text at once, which no code can be checked against.)"""

Pipeline = Any
"""A `redis.client.Pipeline`."""

CONNECT_TIMEOUT_S = 5.0
SOCKET_TIMEOUT_S = 60.0
"""Longest wait for one reply."""
MAX_BLOCK_MS = 30_000
"""Longest blocking read; one that is asked to wait longer comes back empty after this."""


def connect(address: str) -> Redis:
    """A client for `redis://host:port/db`, `rediss://...` or `unix:///path/to/socket`. Does not connect yet.

    Short outages are retried with backoff. Raises InvalidOption for another kind of address.
    """
    options: dict[str, Any] = {
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": SOCKET_TIMEOUT_S,
        "retry": Retry(ExponentialBackoff(cap=1.0, base=0.05), retries=6),
        "retry_on_error": [redis.exceptions.ConnectionError, redis.exceptions.BusyLoadingError],
        "health_check_interval": 30,
    }
    if address.startswith("unix://"):
        # By path: the URL form does not survive RQ's copies of a connection.
        return redis.Redis(unix_socket_path=address.removeprefix("unix://"), **options)
    if address.startswith(("redis://", "rediss://")):
        return redis.Redis.from_url(address, **options)
    raise InvalidOption(
        f"redis_url is {address!r}: expected redis://, rediss:// or unix://",
        field="redis_url",
        value=address,
        limit="redis://, rediss://, unix://",
    )


@contextmanager
def answering() -> Iterator[None]:
    """Turns a Redis that does not answer, is full, or refuses a command, because somebody keeps another thing under a
    name of ours, into Unavailable."""
    try:
        yield
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
        raise Unavailable(f"Redis does not answer: {error}", field="redis_url") from error
    except redis.exceptions.OutOfMemoryError as error:
        raise Unavailable(f"Redis is full: {error}", field="redis_url") from error
    except redis.exceptions.ResponseError as error:
        raise Unavailable(f"Redis refuses a command: {error}", field="redis_url") from error


def text_of(element: bytes) -> str | None:
    """None for what is no text: others write to Redis, too."""
    try:
        return element.decode()
    except UnicodeDecodeError:
        return None


def texts_of(connection: Redis, key: str, elements: Iterable[bytes]) -> list[str] | None:
    """Elements of a sorted set; None where some were no texts: those are taken out of it, and a word is in the log."""
    found = {element: text_of(element) for element in elements}
    bad = [element for element, text in found.items() if text is None]
    if not bad:
        return [text for text in found.values() if text is not None]
    connection.zrem(key, *bad)
    log.error("%d elements of %s are no text and were taken out: %.100r", len(bad), key, bad[0])
    return None


def is_answering(connection: Redis) -> bool:
    """Whether Redis answers a ping now."""
    try:
        with answering():
            return bool(connection.ping())
    except Unavailable:
        return False
