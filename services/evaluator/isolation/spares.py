"""Children that wait ready for when a kernel ends the one at work: started and warmed in the background.

A few are kept as a rule, with nothing but a context of the device. Once a kernel has ended a child they are made warm:
they have the batch's workload open and its inputs drawn when they are needed. A batch whose kernels end children one
after another gets more of them. The next one finds as many: what is left is made warm for it while it begins. Batches
that need none let go of them. Each has its own context and inputs in the device's memory.

Where others use the device, too, what these children do takes turns with them, and one is prepared at a time.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from services.evaluator.allowance import Waits
from services.evaluator.gpu_turn import NO_TURNS, Turns
from services.evaluator.isolation.child import Call, Child, Done, Ended, Open
from sparsesmith.errors import SparsesmithError

logger = logging.getLogger(__name__)

AT_ONCE = 8
"""Children that are started or warmed at the same time."""


class SpareLimits(NamedTuple):
    """How many children wait."""

    least: int = 1
    """As a rule."""
    most: int = 0
    """Where kernels end one after another; none ever where this is zero."""


NO_SPARES = SpareLimits()


@dataclass(frozen=True, eq=False)
class Warmth:
    """What a spare child is to have done when it is taken."""

    opening: Open | None = None
    """The workload to open; None: only the device is up."""
    calls: Sequence[tuple[Call, float]] = field(default=())
    """With their limits in seconds; the last one draws the batch's inputs."""
    open_limit_s: float = 0.0


class Demand:
    """How many spares are wanted, by what the batches until now needed."""

    def __init__(self, limits: SpareLimits) -> None:
        self._least = min(limits)
        self._most = limits.most
        self._num_ended = 0
        self.number = self._least

    @property
    def is_raised(self) -> bool:
        """Whether kernels ended children, in this batch or not long ago."""
        return self._num_ended > 0 or self.number > self._least

    def note_ended(self) -> None:
        """A kernel has ended its child: as many as did in this batch may follow, and each takes one while its
        own is being replaced."""
        self._num_ended += 1
        self.number = max(self.number, min(2 * self._num_ended, self._most))

    def next_batch(self) -> None:
        """As many as the batch before needed; where it needed fewer than were wanted, half of these at least."""
        self.number = max(self._least, min(self._most, max(self._num_ended, self.number // 2)))
        self._num_ended = 0


@dataclass(frozen=True, eq=False)
class _Coming:
    """A child that is ready when `future` is done."""

    future: "Future[Child | None]"
    ready: Child | None = None
    """It was, and is to be made warm for another batch: until that begins it may be taken as it is."""

    @property
    def child(self) -> Child | None:
        """Of one that is done or was cancelled."""
        return self.ready if self.future.cancelled() else self.future.result()


class Spares:
    """Use from one thread; children are prepared and buried in threads that live as long as this object."""

    def __init__(self, make: Callable[[], Child], start_limit_s: float, most: int, turns: Turns = NO_TURNS) -> None:
        """At most so many wait or start."""
        self._make = make
        self._start_limit_s = start_limit_s
        self._most = most
        self._turns = turns
        self._preparing = ThreadPoolExecutor(1 if turns.is_shared else min(AT_ONCE, most), "spare")
        self._burying = ThreadPoolExecutor(most + 1, "burial")
        self._coming: list[_Coming] = []
        self._lock = Lock()
        self._made: list[Child] = []
        """To be ended at the end; None are made any more where `_is_closed`."""
        self._is_closed = False

    def prepare(self, number: int, warmth: Warmth) -> None:
        """Has so many children ready or coming; those that are begun now get this warmth."""
        while len(self._coming) < min(number, self._most):
            self._coming.append(_Coming(self._preparing.submit(self._prepared, warmth)))

    def renew(self, number: int, warmth: Warmth) -> None:
        """So many of those that are ready for another batch are made ready for this one."""
        for place, coming in enumerate(self._coming[:number] if warmth.opening is not None else ()):
            child = _ready(coming)
            if child is not None and child.opening is not warmth.opening:
                self._coming[place] = _Coming(self._preparing.submit(self._renewed, child, warmth), child)

    def trim(self, number: int) -> None:
        """Ends what is ready beyond so many: its context is memory that a workload may need."""
        for coming in self._coming[number:]:
            if coming.future.done() or coming.future.cancel():
                self._coming.remove(coming)
                if (child := coming.child) is not None:
                    self._let_go(child)
                    if not self._turns.is_shared:
                        child.kill()
                    self._burying.submit(self._end, child)

    def take(self, opening: Open | None) -> Child | None:
        """A child that is ready, one that has this batch open if there is any, or the next to be; None where none
        comes."""
        while self._coming:
            coming = self._best(opening) or self._not_begun()
            if coming is None:
                wait([each.future for each in self._coming], return_when="FIRST_COMPLETED")
                continue
            self._coming.remove(coming)
            child = coming.child
            if child is not None and child.is_alive():
                self._let_go(child)
                return child
        return None

    def bury(self, child: Child) -> None:
        """Waits in the background for the end of a child that was killed."""
        self._burying.submit(child.bury)

    def _end(self, child: Child) -> None:
        """Clearing up after one that was idle is the device's work, too."""
        with self._turns.taken(Waits()):
            child.kill()
            child.bury()

    def wait(self, limit_s: float) -> None:
        """Until all that are coming are ready, so many seconds at most."""
        wait([each.future for each in self._coming], limit_s)

    def close(self) -> None:
        """Ends all of them."""
        with self._lock:
            self._is_closed = True
            for child in self._made:
                child.kill()
        for threads in (self._preparing, self._burying):
            threads.shutdown(wait=True, cancel_futures=True)

    def _best(self, opening: Open | None) -> _Coming | None:
        """Of those that are ready or could not be made so."""
        done = [each for each in self._coming if each.future.done()]
        warm = (each for each in done if (child := _ready(each)) is not None and child.opening is opening)
        return next(warm, done[0] if done else None)

    def _not_begun(self) -> _Coming | None:
        """One that is ready but for its warmth, which it does without."""
        return next((each for each in self._coming if each.ready is not None and each.future.cancel()), None)

    def _let_go(self, child: Child) -> None:
        with self._lock:
            self._made.remove(child)

    def _prepared(self, warmth: Warmth) -> Child | None:
        with self._turns.taken(Waits()):
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
            self._warm(child, warmth)
        except (Ended, SparsesmithError) as error:
            logger.info("a spare device process: %s", error)
        return child

    def _warm(self, child: Child, warmth: Warmth) -> None:
        """Raises Ended, SparsesmithError."""
        opening = warmth.opening
        if opening is None:
            return
        body = child.request_of(opening)
        child.note_opened(None)
        if not self._is_done(child, body, "opening the workload", warmth.open_limit_s):
            return
        child.note_opened(opening)
        for call, limit_s in warmth.calls:
            if not self._is_done(child, call, call.stage, limit_s):
                return
        child.has_drawn = True

    def _is_done(self, child: Child, body: Open | Call, stage: str, limit_s: float) -> bool:
        """Raises Ended."""
        with self._turns.taken_for(stage, Waits()):
            try:
                return isinstance(child.exchange(body, stage, limit_s), Done)
            except Ended:
                if self._turns.is_shared:  # It must not go on beside another's turn.
                    child.kill()
                    child.bury()
                raise


def _ready(coming: _Coming) -> Child | None:
    """The child, where it is prepared and alive."""
    child = coming.future.result() if coming.future.done() else None
    return child if child is not None and child.is_alive() else None
