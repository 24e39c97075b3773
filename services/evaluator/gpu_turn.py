"""Turns on a GPU that several evaluators share: one call uses the device at a time, whoever's it is.

The turn is a lock on a file, so the kernel hands it on when its holder ends, however it ends. It promises no order: who
lets go and asks again at once may get it before those who wait. Hence a line of places before the turn: whoever has
one waits for the place ahead, and lets go of its own when it has that. So nobody overtakes; only at the last place can
several wait. With nobody in line all of it takes some microseconds: a sharer whose calls follow each other has the turn
as long as no other wants it.

What it does not protect against: processes that take no turns, and what a GPU still does for one that was killed from
outside (its memory and its context are cleared up after the lock is gone).
"""

import fcntl
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Protocol

from services.evaluator.allowance import Waits

MOST_SHARERS = 4
NUM_PLACES = 2 * MOST_SHARERS - 1
"""In line: a call of each sharer and the start of one spare process of each, but for who has the turn."""

HOST_STAGES = frozenset({"build", "build_ahead", "profile"})
"""Calls of a workbench that leave the device alone; `build` where the device builds no formats for it."""


class Turns(Protocol):
    """Of one evaluator."""

    is_shared: bool
    """Whether anybody else may use the device."""

    def taken(self, waits: Waits) -> AbstractContextManager[None]:
        """For one use of the device; how long it was waited for is added to the waits. Not to be nested."""
        ...

    def taken_for(self, stage: str, waits: Waits) -> AbstractContextManager[None]:
        """As `taken`, where a call of this name uses the device."""
        ...


class NoTurns:
    """Of an evaluator that has the device to itself."""

    is_shared = False

    @contextmanager
    def taken(self, waits: Waits) -> Iterator[None]:
        yield

    @contextmanager
    def taken_for(self, stage: str, waits: Waits) -> Iterator[None]:
        yield


NO_TURNS = NoTurns()


class GpuTurns:
    """By files whose names begin with that of the device."""

    is_shared = True

    def __init__(self, device: Path, host_stages: Collection[str] = HOST_STAGES) -> None:
        device.parent.mkdir(parents=True, exist_ok=True)
        places = (f".line-{number}" for number in range(NUM_PLACES, 0, -1))
        self._ways = [device.with_suffix(suffix) for suffix in (*places, ".turn")]
        self._host_stages = host_stages

    @contextmanager
    def taken(self, waits: Waits) -> Iterator[None]:
        """See Turns.taken."""
        began = time.monotonic()
        try:
            turn = self._reached()
        finally:
            waits.add(time.monotonic() - began)
        try:
            yield
        finally:
            _let_go(turn)

    @contextmanager
    def taken_for(self, stage: str, waits: Waits) -> Iterator[None]:
        """See Turns.taken_for."""
        if stage in self._host_stages:
            yield
            return
        with self.taken(waits):
            yield

    def _reached(self) -> IO[bytes]:
        """Waits in line; what is locked in the end is the turn."""
        last, *rest = self._ways
        held = _locked(last)
        for way in rest:
            try:
                ahead = _locked(way)
            finally:
                _let_go(held)
            held = ahead
        return held


def _locked(path: Path) -> IO[bytes]:
    """A file object, not a descriptor: what a signal's exception leaves behind is closed with its last reference."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except BaseException:
        file.close()
        raise
    return file


def _let_go(file: IO[bytes]) -> None:
    """Not by closing alone: a process that was forked meanwhile and has not begun its program yet has it open, too."""
    fcntl.flock(file, fcntl.LOCK_UN)
    file.close()
