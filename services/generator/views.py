"""What people look at beside a job's states: its matrix as a card and as a density, and who works."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from services.generator.jobs.ledger import Ledger
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.portrait import Window, density, matrix_card
from sparsesmith_proto.api import Density, MatrixCard

MAX_LOOKS = 2
"""Matrices that are read and counted at a time; other requests wait for their turn."""
MAX_CARDS = 256
MAX_KEPT_BYTES = 64 * 2**20
"""A pattern of at most this size stays in memory after a look, the last one only: people zoom."""

Seen = TypeVar("Seen")


class MatrixViews:
    """Counting runs in threads, in pieces: however large the matrix, the event loop goes on."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._looking = asyncio.Semaphore(MAX_LOOKS)
        self._reading = asyncio.Lock()
        self._cards: OrderedDict[str, MatrixCard] = OrderedDict()
        self._last: Pattern | None = None

    async def card(self, job_id: str) -> MatrixCard:
        """Raises NotFound, also where the matrix is not stored any more, Unavailable."""
        digest = await self._digest(job_id)
        if digest not in self._cards:
            self._cards[digest] = await self._look(digest, matrix_card)
            if len(self._cards) > MAX_CARDS:
                self._cards.popitem(last=False)
        return self._cards[digest]

    async def density(
        self, job_id: str, rows: tuple[int, int | None], cols: tuple[int, int | None], most_boxes: int
    ) -> Density:
        """Raises as `card` does, and InvalidOption for rows or columns that the matrix does not have."""
        digest = await self._digest(job_id)
        return await self._look(digest, lambda pattern: density(pattern, Window.of(pattern, *rows, *cols), most_boxes))

    async def _digest(self, job_id: str) -> str:
        return (await self._ledger.job(job_id)).order.workload.pattern

    async def _look(self, digest: str, see: Callable[[Pattern], Seen]) -> Seen:
        async with self._looking:
            return await asyncio.to_thread(see, await self._pattern(digest))

    async def _pattern(self, digest: str) -> Pattern:
        """Whoever asks for the same at the same time waits for the one that reads it."""
        async with self._reading:
            if self._last is not None and self._last.digest == digest:
                return self._last
            pattern = await self._ledger.pattern(digest)
            self._last = pattern if pattern.num_bytes <= MAX_KEPT_BYTES else None
            return pattern
