"""Where users' samples wait while the engine holds a version that they must not be given."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SamplingGate:
    """Users' samples go through while it is open; who closes it waits for those that are in it to come out.

    All methods belong to one event loop.
    """

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._opened.set()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._num_inside = 0

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Around one sample of a user."""
        while not self._opened.is_set():
            await self._opened.wait()
        self._num_inside += 1
        self._emptied.clear()
        try:
            yield
        finally:
            self._num_inside -= 1
            if not self._num_inside:
                self._emptied.set()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Around the time in which no user's sample may be taken; begins once none is. One at a time."""
        self._opened.clear()
        try:
            await self._emptied.wait()
            yield
        finally:
            self._opened.set()
