"""Spare children: how many are wanted, which one is taken, and that nobody waits for what can be done without."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, cast

import numpy as np
import pytest

from services.evaluator.isolation.child import Call, Child, Done, Open
from services.evaluator.isolation.spares import AT_ONCE, Demand, SpareLimits, Spares, Warmth
from sparsesmith.matrix.pattern import pattern_from_indices
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Workload

PATIENCE_S = 30.0


class IdleChild:
    """What `Spares` asks of a Child; it is up when it is let."""

    def __init__(self, starts: threading.Event, warms: threading.Event) -> None:
        self._starts, self._warms = starts, warms
        self.opening: Open | None = None
        self.has_drawn = self.is_starting = False
        self.is_killed = self.is_buried = False

    def is_alive(self) -> bool:
        return not self.is_killed

    def wait_until_ready(self, limit_s: float) -> None:
        self.is_starting = True
        assert self._starts.wait(PATIENCE_S)
        self.is_starting = False

    def request_of(self, opening: Open) -> Open:
        return opening

    def note_opened(self, opening: Open | None) -> None:
        self.opening = opening

    def exchange(self, body: Open | Call, stage: str, limit_s: float) -> Done:
        assert self._warms.wait(PATIENCE_S)
        return Done(0, None)

    def kill(self) -> None:
        self.is_killed = True

    def bury(self) -> None:
        self.is_buried = True


class Nursery:
    """Makes children that are up, and warm, when the test says so."""

    def __init__(self) -> None:
        self.starts, self.warms = threading.Event(), threading.Event()
        self.children: list[IdleChild] = []

    def __call__(self) -> Child:
        self.children.append(IdleChild(self.starts, self.warms))
        return cast(Child, self.children[-1])


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.starts.set()
    made.warms.set()


def warmth() -> Warmth:
    pattern = pattern_from_indices(4, 4, np.arange(4), np.arange(4))
    workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float32")
    return Warmth(Open(workload, Problem(workload, pattern)), ((Call("draw"), 1.0),), 1.0)


def until(holds: Callable[[], Any]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.005)


def test_a_batch_may_lose_as_many_children_again_as_it_has_lost_and_the_next_one_as_many() -> None:
    demand = Demand(SpareLimits(least=3, most=9))
    assert (demand.number, demand.is_raised) == (3, False)
    wanted = []
    for _ in range(6):
        demand.note_ended()
        wanted.append(demand.number)
    assert wanted == [3, 4, 6, 8, 9, 9]
    quiet = []
    for _ in range(4):
        demand.next_batch()
        quiet.append((demand.number, demand.is_raised))
    assert quiet == [(6, True), (3, False), (3, False), (3, False)]


def test_without_spares_none_are_wanted() -> None:
    demand = Demand(SpareLimits())
    demand.note_ended()
    assert demand.number == 0


def test_few_children_start_at_once_and_all_come(nursery: Nursery) -> None:
    with closing(Spares(nursery, PATIENCE_S, AT_ONCE + 3)) as spares:
        spares.prepare(AT_ONCE + 3, Warmth())
        until(lambda: sum(child.is_starting for child in nursery.children) == AT_ONCE)
        assert len(nursery.children) == AT_ONCE
        nursery.starts.set()
        spares.wait(PATIENCE_S)
        assert len(nursery.children) == AT_ONCE + 3
        assert {cast(IdleChild, spares.take(None)) for _ in range(AT_ONCE + 3)} == set(nursery.children)
        assert spares.take(None) is None


def test_a_child_that_is_warm_for_the_batch_is_taken_before_one_that_is_not(nursery: Nursery) -> None:
    nursery.starts.set()
    nursery.warms.set()
    with closing(Spares(nursery, PATIENCE_S, 3)) as spares:
        spares.prepare(2, Warmth())
        spares.wait(PATIENCE_S)
        this_batch = warmth()
        spares.prepare(3, this_batch)
        spares.wait(PATIENCE_S)
        warm = spares.take(this_batch.opening)
        assert warm is not None and warm.opening is this_batch.opening and warm.has_drawn
        cold = spares.take(this_batch.opening)
        assert cold is not None and cold.opening is None


def test_nobody_waits_for_warmth_that_was_not_begun(nursery: Nursery) -> None:
    nursery.starts.set()
    with closing(Spares(nursery, PATIENCE_S, AT_ONCE + 1)) as spares:
        spares.prepare(AT_ONCE + 1, Warmth())
        spares.wait(PATIENCE_S)
        this_batch = warmth()
        spares.renew(AT_ONCE + 1, this_batch)  # All threads are at it, and one child is left.
        taken = spares.take(this_batch.opening)
        assert taken is not None and taken.opening is None and taken.is_alive()
        nursery.warms.set()
        rest = [spares.take(this_batch.opening) for _ in range(AT_ONCE)]
        assert all(child is not None and child.opening is this_batch.opening for child in rest)


def test_as_many_are_made_warm_as_are_wanted(nursery: Nursery) -> None:
    nursery.starts.set()
    nursery.warms.set()
    with closing(Spares(nursery, PATIENCE_S, 4)) as spares:
        spares.prepare(4, Warmth())
        spares.wait(PATIENCE_S)
        spares.renew(2, warmth())
        spares.wait(PATIENCE_S)
        assert sum(child.has_drawn for child in nursery.children) == 2


def test_what_is_no_longer_wanted_is_ended_and_buried(nursery: Nursery) -> None:
    nursery.starts.set()
    with closing(Spares(nursery, PATIENCE_S, 4)) as spares:
        spares.prepare(4, Warmth())
        spares.wait(PATIENCE_S)
        spares.trim(1)
        assert sum(child.is_killed for child in nursery.children) == 3
        until(lambda: all(child.is_buried for child in nursery.children if child.is_killed))
        left = spares.take(None)
        assert left is not None and left.is_alive()
        assert spares.take(None) is None
