"""A policy in this process, as the generator serves it: vLLM in processes of its own, with the weights of the folder."""

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
async def serving(folder: PolicyFolder, settings: GeneratorSettings) -> AsyncIterator[PolicySampler]:
    """Raises Unavailable where the engine does not start."""
    sampler = policy_sampler(folder, settings)

    async def as_shipped(_: Engine) -> None:
        sampler.writer.use_shipped()

    began, served = time.monotonic(), asyncio.create_task(sampler.host.run(as_shipped))
    try:
        await _started(sampler)
        print(f"the engine serves after {time.monotonic() - began:.0f} s", flush=True)
        yield sampler
    finally:
        served.cancel()
        with suppress(asyncio.CancelledError):
            await served


async def _started(sampler: PolicySampler) -> None:
    waiting = asyncio.ensure_future(sampler.host.serving())
    while not (await asyncio.wait({waiting}, timeout=0.5))[0]:
        if sampler.is_broken:
            waiting.cancel()
            raise Unavailable("the engine did not start: see its words above", field="policy")
