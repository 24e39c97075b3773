"""How long the stages of a job took."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from services.evaluator.allowance import Waits

TURN = "turn"
"""Of a GPU that is shared: what calls waited for it, which is of no other stage."""


class Stages:
    """Wall time of stages in milliseconds."""

    def __init__(self, waits: Waits | None = None) -> None:
        """`waits`: of the calls that this thread makes."""
        self._ms: dict[str, float] = {}
        self._waits = waits or Waits()
        self._thread = threading.get_ident()
        self._started = time.perf_counter()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        begun, waited = time.perf_counter(), self._waited_s()
        try:
            yield
        finally:
            seconds = time.perf_counter() - begun - (self._waited_s() - waited)
            self._ms[name] = self._ms.get(name, 0.0) + seconds * 1e3

    @property
    def ms(self) -> dict[str, float]:
        """By stage; TURN among them where the GPU was waited for."""
        waited_ms = self._waits.seconds * 1e3
        return {**self._ms, TURN: waited_ms} if waited_ms else dict(self._ms)

    def _waited_s(self) -> float:
        """Other threads wait for no device."""
        return self._waits.seconds if threading.get_ident() == self._thread else 0.0

    @property
    def seconds(self) -> float:
        """Since this object was made."""
        return time.perf_counter() - self._started
