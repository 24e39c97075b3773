"""Families' likely winners and samples of the policy, raced together."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, cast

from services.generator.search.families import families
from services.generator.search.sample import sample
from services.generator.search.strategy import Batch, Findings, Sources
from services.generator.task import TuningTask
from sparsesmith.errors import Unavailable

log = logging.getLogger(__name__)


async def auto(task: TuningTask, sources: Sources, limit: int, findings: Findings) -> AsyncIterator[Batch]:
    """Half of the candidates each; families alone where there is no policy or where it cannot be loaded."""
    if sources.sampler is None or sources.sampler.is_broken:
        runners = [families(task, sources, limit, findings)]
    else:
        for_families = (limit + 1) // 2
        runners = [
            families(task, sources, for_families, findings),
            sample(task, sources, limit - for_families, findings),
        ]
    async for batch in raced(runners):
        yield batch


async def raced(runners: list[AsyncIterator[Batch]]) -> AsyncIterator[Batch]:
    """Batches of all runners as they come. One batch a runner is fetched ahead, so that none waits for another."""
    fetching = {_fetch(runner): runner for runner in runners}
    try:
        while fetching:
            await asyncio.wait(fetching, return_when=asyncio.FIRST_COMPLETED)
            for fetched in [task for task in fetching if task.done()]:
                runner = fetching.pop(fetched)
                try:
                    batch = fetched.result()
                except StopAsyncIteration:
                    continue
                except Unavailable as error:
                    log.warning("a search source gave up, the others go on: %s", error)
                    continue
                fetching[_fetch(runner)] = runner
                yield batch
    finally:
        for fetched in fetching:
            fetched.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)
        for runner in runners:
            await cast(Any, runner).aclose()


def _fetch(runner: AsyncIterator[Batch]) -> asyncio.Task[Batch]:
    return asyncio.ensure_future(_next(runner))


async def _next(runner: AsyncIterator[Batch]) -> Batch:
    return await anext(runner)
