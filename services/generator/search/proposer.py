"""What a source of candidates is."""

from typing import Protocol

from services.generator.search.standing import Batch, Standing
from sparsesmith_proto.api import SourceName

ENGINE_PATIENCE_S = 15.0
"""For the service's own engine, while it serves, when no other source has anything."""


class Exhausted(Exception):
    """A source has no more candidates that are worth their time."""


class Proposer(Protocol):
    """One source of candidates for one search. Used from one task; closed at the end."""

    @property
    def name(self) -> SourceName: ...

    @property
    def is_busy(self) -> bool:
        """Whether candidates are being made that were asked for."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether some of them are there."""
        ...

    @property
    def patience_s(self) -> float:
        """How long it is waited for when no other source has anything and nothing is being graded."""
        ...

    async def propose(self, size: int, standing: Standing) -> Batch:
        """About `size` candidates, the most promising there are. Empty: they are being made, see `ready`.

        Raises Exhausted, Unavailable where the source does not work.
        """
        ...

    async def ready(self) -> None:
        """Waits until a busy source has something."""
        ...

    async def close(self) -> None: ...
