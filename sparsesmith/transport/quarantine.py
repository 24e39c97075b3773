"""GPUs whose memory was found faulty, by UUID: evaluators put them here and take none of them.

They stay until an operator who has looked at them takes them out: `sparsesmith gpus release UUID`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import TypeAdapter

from sparsesmith.errors import NotFound
from sparsesmith.transport.connection import Redis, answering

_GPUS = "sparsesmith:quarantine"


@dataclass(frozen=True)
class Faulty:
    """A GPU, when it was found so, by whom and why."""

    uuid: str
    at: str
    worker: str
    reason: str


_FAULTY = TypeAdapter(Faulty)


class Quarantine:
    """Of all evaluators on one Redis."""

    def __init__(self, connection: Redis, clock: Callable[[], float] = time.time) -> None:
        """`clock`: seconds since 1970."""
        self._connection = connection
        self._clock = clock

    def add(self, uuid: str, worker: str, reason: str) -> None:
        """The first reason stays. Raises Unavailable."""
        at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds")
        with answering():
            self._connection.hsetnx(_GPUS, uuid, _FAULTY.dump_json(Faulty(uuid, at, worker, reason)))

    def all(self) -> list[Faulty]:
        """The longest in it first. Raises Unavailable."""
        with answering():
            kept = self._connection.hvals(_GPUS)
        return sorted((_FAULTY.validate_json(text) for text in kept), key=lambda each: (each.at, each.uuid))

    def uuids(self) -> set[str]:
        """Raises Unavailable."""
        return {each.uuid for each in self.all()}

    def release(self, uuid: str) -> None:
        """Evaluators may take it again. Raises NotFound, Unavailable."""
        with answering():
            if not self._connection.hdel(_GPUS, uuid):
                raise NotFound(f"no GPU {uuid} is in quarantine", field="uuid", value=uuid)
