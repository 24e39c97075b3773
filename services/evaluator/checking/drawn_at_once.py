"""Draws of a batch on the host, several at once, each on a core of its own: those of the kinds, fresh ones, and changed
ones (`changes`), which are a chain on the first.

Each has a generator of its own. NumPy's generators and functions let other threads run; what asks somebody else for its
reference (large products, imported tasks) waits its turn there.

What it does not protect against: what a reference takes in host memory beyond its operands and results, and other
processes that look at the same moment how much is available. So only a share of it is planned with.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from services.evaluator.checking.changes import Change, changes
from services.evaluator.checking.draws import draw
from services.evaluator.checking.threads import Ask, Work, run_at_once
from services.evaluator.cores import num_cores
from services.evaluator.device import Draw
from services.evaluator.host_memory import available_bytes
from sparsesmith.operations import Problem
from sparsesmith.operations.draws import inputs_of
from sparsesmith.operations.large_products import asked_through

MEMORY_SHARE = 4
"""Draws that are made at once may take this fraction of the memory that is available (a quarter)."""

CHAIN_DRAWS = 4
"""What is alive of a chain of changes: the first draw, another that values come from, the last change, the next."""


@dataclass(frozen=True)
class Batch:
    """What is to be drawn."""

    kinds: Sequence[str]
    num_fresh: int = 0
    """More of the first kind."""
    num_changes: int = 0
    """Of the first draw, at most."""
    changes_limit_s: float = 0.0
    """See `changes`."""


@dataclass(frozen=True, eq=False)
class OfKind:
    """A draw of one of the kinds."""

    place: int
    """Of the kind in the batch."""
    draw: Draw


@dataclass(frozen=True, eq=False)
class Fresh:
    """A draw that shares nothing with the others."""

    draw: Draw


Drawn = OfKind | Fresh | Change
Take = Callable[[Drawn], None]
"""Is given each when it is made, in the caller's thread; what it keeps of the host's arrays counts as free memory."""


@dataclass(frozen=True)
class Room:
    """How much is made at once; numbers of 1 at least."""

    num_draws: int
    """In host memory."""
    num_threads: int


def room_for(problem: Problem) -> Room:
    """As many draws as there are cores, and as fit a share of the memory that is available now; one at least."""
    fitting = max(1, available_bytes() // MEMORY_SHARE // max(1, bytes_of_draw(problem)))
    return Room(fitting, num_cores())


def bytes_of_draw(problem: Problem) -> int:
    """On the host: inputs in float64, as they are drawn, and what they are judged by."""
    num_inputs = sum(each.num_elements(problem.sizes) for each in inputs_of(problem))
    return 8 * num_inputs + judging_bytes(problem)


def judging_bytes(problem: Problem) -> int:
    """What one draw is judged by: reference, magnitude and bound of each result in float64."""
    return 3 * 8 * problem.num_results


def draw_at_once(problem: Problem, batch: Batch, generator: np.random.Generator, room: Room, take: Take) -> None:
    """Draws all of a batch. Changes come in their order behind the draw of the first kind, the rest in any.

    Raises what a draw or `take` raises (SparsesmithError, MemoryError), when no thread is left.
    """
    works = _Drawing(problem, batch, take).works(generator, room)
    run_at_once(works, room.num_draws, room.num_threads)


@dataclass(frozen=True)
class _Drawing:
    problem: Problem
    batch: Batch
    take: Take

    def works(self, generator: np.random.Generator, room: Room) -> list[Work]:
        """What takes longest begins first."""
        batch, num_kinds = self.batch, len(self.batch.kinds)
        own = generator.spawn(num_kinds + batch.num_fresh)
        chain = min(CHAIN_DRAWS, room.num_draws) if batch.num_changes else 1
        kinds = [Work(partial(self._of_kind, place, each), 1) for place, each in enumerate(own[:num_kinds])]
        fresh = [Work(partial(self._fresh, each), 1) for each in own[num_kinds:]]
        return [replace(kinds[0], weight=chain), *kinds[1:], *fresh]

    def _of_kind(self, place: int, generator: np.random.Generator, ask: Ask) -> None:
        drawn = self._drawn(self.batch.kinds[place], generator, ask)
        ask(partial(self.take, OfKind(place, drawn)))
        if place == 0 and self.batch.num_changes:
            self._change(drawn, generator, ask)

    def _fresh(self, generator: np.random.Generator, ask: Ask) -> None:
        ask(partial(self.take, Fresh(self._drawn(self.batch.kinds[0], generator, ask))))

    def _drawn(self, kind: str, generator: np.random.Generator, ask: Ask) -> Draw:
        with asked_through(ask):
            return draw(kind, self.problem, generator)

    def _change(self, drawn: Draw, generator: np.random.Generator, ask: Ask) -> None:
        batch = self.batch
        with asked_through(ask):
            for change in changes(self.problem, drawn, batch.num_changes, generator, batch.changes_limit_s):
                ask(partial(self.take, change))
