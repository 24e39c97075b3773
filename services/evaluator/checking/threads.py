"""Work in several threads at once, for a caller that waits and does meanwhile what only its own thread may do.

What it does not protect against: work that never ends, which nothing stops; the caller waits for what has begun.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

THREADS = "at-once"
"""What their names begin with."""


class Ask(Protocol):
    """Has the caller's thread do something, and waits for what it finds. Raises CancelledError where the caller has
    given up."""

    def __call__(self, what: Callable[[], T], /) -> T: ...


@dataclass(frozen=True)
class Work:
    """What one thread does."""

    run: Callable[[Ask], None]
    weight: int
    """Of what it holds in memory until it ends."""


def run_at_once(works: Sequence[Work], most: int, num_threads: int) -> None:
    """Does all of it, begun in order, in so many threads and with no more than so much weight at once; what is heavier
    runs alone. Numbers of 1 at least. Each sees the caller's context (of NumPy's errors, for one).

    The first error, of work or of what the caller was asked to do, is raised when everything that was begun has ended;
    nothing is begun after it.
    """
    desk, waiting, running = _Desk(), deque(works), dict[Future[None], int]()
    with ThreadPoolExecutor(num_threads, THREADS) as threads, closing(desk):
        while waiting or running:
            while waiting and _fits(waiting[0].weight, list(running.values()), most, num_threads):
                work = waiting.popleft()
                begun = threads.submit(copy_context().run, work.run, desk.ask)
                running[begun] = work.weight
                begun.add_done_callback(desk.note_end)
            ended = desk.serve_until_one_ends()
            del running[ended]
            ended.result()


def _fits(weight: int, running: Sequence[int], most: int, num_threads: int) -> bool:
    return not running or (len(running) < num_threads and sum(running) + weight <= most)


@dataclass(frozen=True, eq=False)
class _Asked:
    what: Callable[[], Any]
    answer: "Future[Any]" = field(default_factory=Future)


class _Desk:
    """Where threads come with what the caller is to do."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Asked | Future[None]] = SimpleQueue()
        self._unanswered: set[_Asked] = set()
        self._lock = Lock()
        self._is_open = True

    def ask(self, what: Callable[[], T], /) -> T:
        """See Ask."""
        asked = _Asked(what)
        with self._lock:
            if not self._is_open:
                raise CancelledError
            self._unanswered.add(asked)
        self._queue.put(asked)
        found: T = asked.answer.result()
        return found

    def note_end(self, ended: "Future[None]") -> None:
        self._queue.put(ended)

    def serve_until_one_ends(self) -> "Future[None]":
        """Raises what the caller's own work raises."""
        while (ended := self._served()) is None:
            pass
        return ended

    def close(self) -> None:
        """Nobody is answered any more."""
        with self._lock:
            self._is_open = False
            for asked in self._unanswered:
                asked.answer.cancel()

    def _served(self) -> "Future[None] | None":
        """One that has ended; None: one was answered. Holds nothing of what was asked afterwards."""
        event = self._queue.get()
        if isinstance(event, Future):
            return event
        found = event.what()
        with self._lock:
            self._unanswered.discard(event)
        event.answer.set_result(found)
        return None
