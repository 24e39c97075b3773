"""Keeps an engine serving: loads it while HTTP is up already, and replaces one that died."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from services.generator.policy.engine import Engine, EngineOptions, end_engine_processes, load_engine

log = logging.getLogger(__name__)

ALIVE_POLL_S = 1.0
MAX_RESTART_S = 300.0

OnLoaded = Callable[[Engine], Awaitable[None]]
"""Brings a fresh engine to the newest published weights before it serves."""


class EngineHost:
    """Runs `run` as a task; everyone else asks `serving`."""

    def __init__(self, options: EngineOptions, restart_s: float) -> None:
        self._options = options
        self._restart_s = restart_s
        self._engine: Engine | None = None
        self._opened = asyncio.Event()
        self.num_failures = 0
        """Loads in a row that failed; 0 while an engine serves."""

    @property
    def engine(self) -> Engine | None:
        """The engine if it serves now."""
        return self._engine if self._engine is not None and self._engine.is_alive else None

    @property
    def is_broken(self) -> bool:
        """The engine could not be loaded; it is tried again now and then."""
        return self.num_failures > 0

    async def serving(self) -> Engine:
        """Wait for an engine that serves."""
        while (engine := self.engine) is None:
            self._opened.clear()
            await self._opened.wait()
        return engine

    async def run(self, on_loaded: OnLoaded) -> None:
        """Load, serve until the engine dies, load again; until cancelled."""
        while True:
            try:
                await self._serve_one(on_loaded)
            except Exception:
                # vLLM raises whatever its start-up met (memory, files, devices): the service lives on without it.
                self.num_failures += 1
                log.exception("the engine did not start")
            await asyncio.sleep(min(self._restart_s * 2**self.num_failures, MAX_RESTART_S))

    async def _serve_one(self, on_loaded: OnLoaded) -> None:
        started = time.monotonic()
        loading = asyncio.ensure_future(asyncio.to_thread(load_engine, self._options))
        try:
            llm = await asyncio.shield(loading)
        except asyncio.CancelledError:
            end_engine_processes()
            with suppress(Exception):
                (await loading).shutdown()
            raise
        engine = Engine(llm)
        try:
            await on_loaded(engine)
            log.info("the engine serves version %d after %.1f s", engine.version, time.monotonic() - started)
            self.num_failures = 0
            self._engine = engine
            self._opened.set()
            while engine.is_alive:
                await asyncio.sleep(ALIVE_POLL_S)
            log.error("the engine died; starting another")
        finally:
            self._engine = None
            await engine.close()
