"""Children that wait ready for when a kernel ends the one at work: started and warmed in the background.

One is kept as a rule. A batch whose kernels end children one after another gets more of them, and these have its
workload open and its inputs drawn when they are needed; what is left of them is made warm for the next batch while that
begins. Each has its own context and inputs in the device's memory.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Lock

from services.evaluator.isolation.child import Call, Child, Done, Ended, Open
from sparsesmith.errors import SparsesmithError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Warmth:
    """What a spare child is to have done when it is taken."""

    opening: Open | None = None
    """The workload to open; None: only the device is up."""
    calls: Sequence[tuple[Call, float]] = field(default=())
    """With their limits in seconds; the last one draws the batch's inputs."""
    open_limit_s: float = 0.0


class Spares:
    """Use from one thread; each child is prepared in a thread of its own, which lives as long as this object."""

    def __init__(self, make: Callable[[], Child], start_limit_s: float, most: int) -> None:
        """At most so many wait or start at once."""
        self._make = make
        self._start_limit_s = start_limit_s
        self._most = most
        self._threads = ThreadPoolExecutor(2 * most, "spare")
        self._coming: list[Future[Child | None]] = []
        self._lock = Lock()
        self._made: list[Child] = []
        """To be ended at the end; None are made any more where `_is_closed`."""
        self._is_closed = False

    def prepare(self, number: int, warmth: Warmth) -> None:
        """Has so many children ready or coming; those that are begun now get this warmth."""
        while len(self._coming) < min(number, self._most):
            self._coming.append(self._threads.submit(self._prepared, warmth))

    def renew(self, warmth: Warmth) -> None:
        """Those that are ready for another batch are made ready for this one."""
        for place, coming in enumerate(self._coming if warmth.opening is not None else ()):
            child = coming.result() if coming.done() else None
            if child is not None and child.is_alive() and child.opening is not warmth.opening:
                self._coming[place] = self._threads.submit(self._renewed, child, warmth)

    def take(self) -> Child | None:
        """A child that is ready, or the next to be; None where none comes."""
        while self._coming:
            wait(self._coming, return_when="FIRST_COMPLETED")
            ready = next(coming for coming in self._coming if coming.done())
            self._coming.remove(ready)
            child = ready.result()
            if child is not None and child.is_alive():
                with self._lock:
                    self._made.remove(child)
                return child
        return None

    def bury(self, child: Child) -> None:
        """Waits in the background for the end of a child that was killed."""
        self._threads.submit(child.bury)

    def close(self) -> None:
        """Ends all of them."""
        with self._lock:
            self._is_closed = True
            for child in self._made:
                child.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _prepared(self, warmth: Warmth) -> Child | None:
        with self._lock:
            if self._is_closed:
                return None
            child = self._make()
            self._made.append(child)
        try:
            child.wait_until_ready(self._start_limit_s)
        except SparsesmithError as error:
            logger.info("a spare device process: %s", error)
            return child
        return self._renewed(child, warmth)

    def _renewed(self, child: Child, warmth: Warmth) -> Child:
        try:
            _warm(child, warmth)
        except (Ended, SparsesmithError) as error:
            logger.info("a spare device process: %s", error)
        return child


def _warm(child: Child, warmth: Warmth) -> None:
    """Raises Ended, SparsesmithError."""
    opening = warmth.opening
    if opening is None:
        return
    body = child.request_of(opening)
    child.note_opened(None)
    if not isinstance(child.exchange(body, "opening the workload", warmth.open_limit_s), Done):
        return
    child.note_opened(opening)
    for call, limit_s in warmth.calls:
        if not isinstance(child.exchange(call, call.stage, limit_s), Done):
            return
    child.has_drawn = True
