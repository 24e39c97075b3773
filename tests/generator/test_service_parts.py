"""Parts of the service that fail."""

import asyncio
from contextlib import suppress

import pytest

from services.generator.service import kept_running


def test_a_part_that_fails_is_told_at_once_and_starts_again(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    async def part() -> None:
        told.append(caplog.text)
        if len(told) == 1:
            async with asyncio.TaskGroup() as inner:
                inner.create_task(asyncio.sleep(60))
                raise AttributeError("a defect")
        await asyncio.sleep(60)

    async def for_a_while() -> None:
        running = asyncio.create_task(kept_running("the policy watch", part, pause_s=0.01))
        while len(told) < 2:
            await asyncio.sleep(0.01)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    asyncio.run(for_a_while())
    assert "the policy watch failed; it starts again" in told[1]
