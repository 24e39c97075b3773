"""Follows the policy channel and puts announced weights into the engine and the encoder together."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from services.generator.policy.engine import Engine, EngineFailed
from services.generator.policy.engine_host import EngineHost
from services.generator.policy.prompts import PromptWriter
from services.generator.policy.weights import RefusedWeights, Shape, check_weights, weights_path
from sparsesmith.errors import Unavailable
from sparsesmith_proto.policy import PolicyAnnouncement

log = logging.getLogger(__name__)


class Announcements(Protocol):
    """Where the trainer's announcements are read."""

    def latest(self) -> PolicyAnnouncement | None:
        """The newest, blocking. Raises Unavailable."""
        ...


class PolicyWatch:
    """Applies the newest announcement to every engine that the host loads, and then each newer one."""

    def __init__(
        self, channel: Announcements, folder: Path, expected: Mapping[str, Shape], writer: PromptWriter, poll_s: float
    ) -> None:
        self._channel = channel
        self._folder = folder
        self._expected = expected
        self._writer = writer
        self._poll_s = poll_s
        self._publishing = asyncio.Lock()
        self._refused: set[str] = set()
        self.announcement: PolicyAnnouncement | None = None
        """Behind the weights that serve; None for the policy as shipped."""
        self.num_refused = 0

    async def run(self, host: EngineHost) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._poll_s)
            if (engine := host.engine) is not None:
                await self.bring_up_to_date(engine)

    async def prepare(self, engine: Engine) -> None:
        """Bring a fresh engine, which has the shipped weights, to the newest that can be had."""
        previous, self.announcement = self.announcement, None
        self._writer.use_shipped()
        await self.bring_up_to_date(engine)
        if self.announcement is None and previous is not None:
            await self._publish(engine, previous)

    async def bring_up_to_date(self, engine: Engine) -> None:
        """Publish the newest announcement to this engine unless it has it. A bad file is refused and logged once."""
        async with self._publishing:
            try:
                newest = await asyncio.to_thread(self._channel.latest)
            except Unavailable as error:
                log.warning("the policy channel does not answer: %s", error)
                return
            if newest is not None and newest.version > engine.version and newest.sha256 not in self._refused:
                await self._publish(engine, newest)

    async def _publish(self, engine: Engine, announcement: PolicyAnnouncement) -> None:
        try:
            path = weights_path(self._folder, announcement)
            await asyncio.to_thread(check_weights, path, announcement, self._expected)
            swap_encoder = await asyncio.to_thread(self._writer.prepared, path)
            await engine.publish(path, announcement.version, swap_encoder)
        except (RefusedWeights, EngineFailed) as error:
            self._refused.add(announcement.sha256)
            self.num_refused += 1
            log.error(
                "policy version %d is refused, version %d goes on: %s", announcement.version, engine.version, error
            )
            return
        self.announcement = announcement
        log.info("policy version %d serves", announcement.version)
