"""How long the stages of a job took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stages:
    """Wall time of stages in milliseconds."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._started = time.perf_counter()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.ms[name] = self.ms.get(name, 0.0) + (time.perf_counter() - begun) * 1e3

    @property
    def seconds(self) -> float:
        """Since this object was made."""
        return time.perf_counter() - self._started
