"""A policy's engine in this process's charge, as the generator runs it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from services.generator.policy.engine import Engine
from services.generator.policy.folder import PolicyFolder
from services.generator.policy.sampling import PolicySampler
from services.generator.service import policy_sampler
from services.generator.settings import GeneratorSettings
from sparsesmith.errors import Unavailable


@asynccontextmanager
async def serving_sampler(settings: GeneratorSettings) -> AsyncIterator[PolicySampler]:
    """Of the settings' policy, by vLLM in processes of its own, until the end. Raises Unavailable where it does not
    start."""
    sampler = idle_sampler(settings)

    async def as_shipped(_: Engine) -> None:
        sampler.writer.use_shipped()

    began, serving = time.monotonic(), asyncio.create_task(sampler.host.run(as_shipped))
    try:
        await _started(sampler)
        print(f"the engine serves after {time.monotonic() - began:.0f} s", flush=True)
        yield sampler
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


def idle_sampler(settings: GeneratorSettings) -> PolicySampler:
    """One whose engine was never started: who asks it for a sample waits."""
    assert settings.policy_dir is not None, "a policy is asked for"
    return policy_sampler(PolicyFolder(settings.policy_dir, settings.policy_kind), settings)


async def _started(sampler: PolicySampler) -> None:
    waiting = asyncio.ensure_future(sampler.host.serving())
    while not (await asyncio.wait({waiting}, timeout=0.5))[0]:
        if sampler.is_broken:
            waiting.cancel()
            raise Unavailable("the engine did not start: see its words above", field="policy")
