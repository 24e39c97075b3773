"""One real engine on one tiny real policy for the whole session: it takes half a minute to start."""

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from services.generator.policy.engine import Engine, EngineOptions
from services.generator.policy.engine_host import EngineHost, OnLoaded
from services.generator.policy.folder import PolicyFolder
from services.generator.policy.kind import PromptWriter
from sparsesmith.policy.checkpoint import Policy
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from tests.generator.tiny_policy import make_policy, write_policy

Result = TypeVar("Result")


@dataclass
class LivePolicy:
    """An engine that serves a tiny policy, on an event loop of the session."""

    runner: asyncio.Runner
    folder: PolicyFolder
    policy: Policy
    writer: PromptWriter
    host: EngineHost
    prepare: OnLoaded | None = None
    """What a fresh engine goes through before it serves, as `PolicyWatch.prepare`; None: it serves as shipped."""

    async def prepared(self, engine: Engine) -> None:
        if self.prepare is None:
            self.writer.use_shipped()
        else:
            await self.prepare(engine)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)


@pytest.fixture(scope="session")
def live_policy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePolicy]:
    policy = make_policy(seed=0)
    folder = PolicyFolder(write_policy(tmp_path_factory.mktemp("policy"), policy))
    options = EngineOptions(folder.language_model_dir(), max_context_tokens=2048, max_samples=16)
    with asyncio.Runner() as runner:
        live = LivePolicy(runner, folder, policy, folder.prompt_writer(), EngineHost(options, restart_s=0.1))

        async def start() -> asyncio.Task[None]:
            serving = asyncio.create_task(live.host.run(live.prepared))
            await live.host.serving()
            return serving

        serving = runner.run(start())
        yield live

        async def stop() -> None:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

        runner.run(stop())


@pytest.fixture
def exchange_dir(tmp_path: Path) -> Path:
    """Where a trainer leaves weights."""
    folder = tmp_path / "exchange"
    folder.mkdir()
    return folder


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """The address of a Valkey server of the test's own."""
    server = EmbeddedValkey(tmp_path / "valkey")
    server.start()
    yield server.address
    server.stop()
