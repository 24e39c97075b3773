"""What a trainer publishes and how an engine takes it: whole weights, or adapters of a language model (`adapters`)."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from services.generator.policy.engine import Engine
from services.generator.policy.kind import PromptWriter
from services.generator.policy.weights import Shape, check_weights, weights_path
from sparsesmith_proto.policy import PolicyAnnouncement


class Publication(Protocol):
    """One form of published weights."""

    def check(self, announcement: PolicyAnnouncement) -> None:
        """Before the engine sees it; blocking. Raises RefusedWeights."""
        ...

    async def load(self, engine: Engine, of: PolicyAnnouncement | None) -> None:
        """Checked weights, or the shipped ones. Raises RefusedWeights, EngineFailed."""
        ...

    def use_shipped(self) -> None:
        """A fresh engine has the shipped weights."""
        ...


class WholeWeights:
    """One file with the language model and, where there is one, the encoder; they are swapped between two tokens."""

    def __init__(
        self, folder: Path, shipped: Sequence[Path], expected: Mapping[str, Shape], writer: PromptWriter
    ) -> None:
        """`folder`: where announced weights lie. `shipped`: the files of version 0's language model."""
        self._folder = folder
        self._shipped = tuple(shipped)
        self._expected = expected
        self._writer = writer

    def check(self, announcement: PolicyAnnouncement) -> None:
        check_weights(weights_path(self._folder, announcement), announcement, self._expected)

    async def load(self, engine: Engine, of: PolicyAnnouncement | None) -> None:
        """Language model and encoder together."""
        if of is None:
            version, weights, swap_encoder = 0, self._shipped, self._writer.use_shipped
        else:
            path = weights_path(self._folder, of)
            version, weights = of.version, (path,)
            swap_encoder = await asyncio.to_thread(self._writer.prepared, path, version)
        await engine.publish(weights, version, swap_encoder)

    def use_shipped(self) -> None:
        self._writer.use_shipped()
