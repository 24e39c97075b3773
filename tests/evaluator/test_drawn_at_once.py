"""Draws of a batch made on several cores at once: the same as one after another, and no more of them than fit."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from threading import Barrier, Lock, get_ident

import numpy as np
import pytest

from services.evaluator.checking import drawn_at_once
from services.evaluator.checking.changes import Change
from services.evaluator.checking.drawn_at_once import (
    CHAIN_DRAWS,
    MEMORY_SHARE,
    Batch,
    Drawn,
    Fresh,
    OfKind,
    Room,
    bytes_of_draw,
    draw_at_once,
    room_for,
)
from services.evaluator.checking.draws import expected_of, kinds_of
from services.evaluator.checking.threads import THREADS, Ask, Work, run_at_once
from services.evaluator.cores import num_cores
from services.evaluator.device import Draw
from sparsesmith.errors import InvalidInput
from sparsesmith.operations import Problem, large_products
from sparsesmith.operations.catalogue import our_tasks
from sparsesmith.operations.operation import Arrays, Drawing, Float64Array
from sparsesmith.operations.task import Task
from tests.operations.checked import make_problem

TASKS = {task.name: task for task in our_tasks()}
ROOMS = [Room(1, 1), Room(2, 4), Room(16, 3), Room(16, 16)]
SEED = 7


def made(problem: Problem, batch: Batch, room: Room) -> list[Drawn]:
    found: list[Drawn] = []
    draw_at_once(problem, batch, np.random.default_rng(SEED), room, found.append)
    return found


def whole_batch(problem: Problem) -> Batch:
    return Batch(kinds_of(problem), num_fresh=3, num_changes=4, changes_limit_s=60.0)


def in_order(found: list[Drawn]) -> list[Draw]:
    of_kinds = {each.place: each.draw for each in found if isinstance(each, OfKind)}
    return [of_kinds[place] for place in sorted(of_kinds)]


def numbers_of(drawn: Drawn) -> list[bytes]:
    return [array.tobytes() for _, array in sorted(drawn.draw.inputs.items())]


def with_draws(problem: Problem, wrapped: Callable[[Drawing], Drawing]) -> Problem:
    """The same problem, of an operation each of whose drawings is wrapped."""
    operation = problem.operation
    assert isinstance(operation, Task)
    draws = {kind: wrapped(drawing) for kind, drawing in operation.draws.items()}
    changed = Problem(problem.workload)
    vars(changed)["operation"] = replace(operation, draws=draws)  # Where the cached property has it.
    return changed


@dataclass
class Alive:
    """Counts what was begun and not yet taken."""

    now: int = 0
    most: int = 0
    lock: Lock = field(default_factory=Lock)

    def begin(self) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def end(self) -> None:
        with self.lock:
            self.now -= 1


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not [each.name for each in threading.enumerate() if each.name.startswith(THREADS)]


@pytest.mark.parametrize("room", ROOMS, ids=str)
@pytest.mark.parametrize("name", TASKS)
def test_every_kind_is_drawn_in_its_place_and_nothing_twice(name: str, room: Room) -> None:
    problem = make_problem(name)
    found = made(problem, whole_batch(problem), room)
    assert [each.name for each in in_order(found)] == list(kinds_of(problem))
    fresh = [each.draw for each in found if isinstance(each, Fresh)]
    assert [each.name for each in fresh] == [kinds_of(problem)[0]] * 3
    seen = {draw.inputs[each].tobytes() for draw in (in_order(found)[0], *fresh) for each in draw.inputs}
    assert len(seen) == 4 * len(fresh[0].inputs)


@pytest.mark.parametrize("room", ROOMS, ids=str)
@pytest.mark.parametrize("name", TASKS)
def test_what_is_right_is_that_of_each_draws_own_inputs(name: str, room: Room) -> None:
    problem = make_problem(name)
    for each in made(problem, whole_batch(problem), room):
        again = expected_of(each.draw.name, problem, each.draw.inputs)["expected"]
        assert again.keys() == each.draw.expected.keys()
        for output, expected in each.draw.expected.items():
            np.testing.assert_allclose(expected.reference, again[output].reference, rtol=1e-12)


@pytest.mark.parametrize("room", ROOMS[1:], ids=str)
def test_what_is_drawn_does_not_depend_on_the_room(room: Room) -> None:
    problem = make_problem("least_squares")
    alone, beside = (made(problem, whole_batch(problem), each) for each in (Room(1, 1), room))
    assert sorted(map(numbers_of, alone)) == sorted(map(numbers_of, beside))


@pytest.mark.parametrize("room", ROOMS, ids=str)
@pytest.mark.parametrize("name", ["dot", "matmul", "reverse", "conv2d"])
def test_changes_are_a_chain_on_the_first_draw(name: str, room: Room) -> None:
    problem = make_problem(name)
    found = made(problem, whole_batch(problem), room)
    changes = [each for each in found if isinstance(each, Change)]
    assert len(changes) == 4
    before = in_order(found)[0]
    for change in changes:
        for operand, array in change.draw.inputs.items():
            differing = np.flatnonzero(array.reshape(-1) != before.inputs[operand].reshape(-1))
            assert list(differing) == ([change.index] if operand == change.operand else [])
        before = change.draw


def test_one_change_is_made_however_long_it_takes() -> None:
    problem = make_problem("dot")
    batch = Batch(kinds_of(problem), num_changes=4, changes_limit_s=-1.0)
    assert [isinstance(each, Change) for each in made(problem, batch, Room(8, 8))].count(True) == 1


@pytest.mark.parametrize(("room", "most"), [(Room(1, 8), 1), (Room(3, 8), 3), (Room(8, 2), 2)], ids=str)
def test_as_many_are_alive_as_there_is_room_for_and_no_more(room: Room, most: int) -> None:
    alive, full = Alive(), Barrier(most)

    def counted(drawing: Drawing) -> Drawing:
        def drawn(problem: Problem, generator: np.random.Generator) -> Arrays:
            alive.begin()
            full.wait(60)  # BrokenBarrierError where fewer are made at once.
            return drawing(problem, generator)

        return drawn

    problem = with_draws(make_problem("sort"), counted)
    kinds = kinds_of(problem)
    draw_at_once(problem, Batch(kinds[:6]), np.random.default_rng(SEED), room, lambda _: alive.end())
    assert (alive.now, alive.most) == (0, most)


def test_a_chain_of_changes_takes_the_room_of_all_that_it_holds() -> None:
    problem = make_problem("dot")
    batch = whole_batch(problem)
    found = made(problem, batch, Room(CHAIN_DRAWS, 8))
    assert [type(each) for each in found[:5]] == [OfKind, Change, Change, Change, Change]
    assert len(found) == 5 + len(batch.kinds) - 1 + batch.num_fresh


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_what_a_reference_raises_comes_out_and_nothing_is_begun_after_it(room: Room) -> None:
    begun: list[str] = []

    def failing(drawing: Drawing) -> Drawing:
        def drawn(problem: Problem, generator: np.random.Generator) -> Arrays:
            begun.append("")
            raise InvalidInput("the reference ended", field="reference", value="sort")

        return drawn

    problem = with_draws(make_problem("sort"), failing)
    with pytest.raises(InvalidInput, match="the reference ended"):
        made(problem, whole_batch(problem), room)
    assert len(begun) <= min(room.num_draws, room.num_threads)


@pytest.mark.parametrize("room", ROOMS, ids=str)
@pytest.mark.parametrize("kind", [OfKind, Change, Fresh])
def test_what_fails_when_it_is_taken_comes_out(room: Room, kind: type) -> None:
    problem = make_problem("dot")

    def take(drawn: Drawn) -> None:
        if isinstance(drawn, kind):
            raise MemoryError(kind.__name__)

    with pytest.raises(MemoryError, match=kind.__name__):
        draw_at_once(problem, whole_batch(problem), np.random.default_rng(SEED), room, take)


def test_threads_that_wait_for_the_caller_end_where_another_fails() -> None:
    asking = threading.Event()
    names: list[str] = []

    def asks(ask: Ask) -> None:
        names.append(threading.current_thread().name)
        with pytest.raises(CancelledError):
            while True:
                ask(asking.set)
        names.append("given up")

    def fails(_: Ask) -> None:
        asking.wait(60)
        raise InvalidInput("no")

    with pytest.raises(InvalidInput, match="no"):
        run_at_once([Work(asks, 1), Work(fails, 1)], 2, 2)
    assert names == [f"{THREADS}_0", "given up"]


def test_threads_work_in_the_callers_context() -> None:
    def divides(_: Ask) -> None:
        np.ones(1) / np.zeros(1)

    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        run_at_once([Work(divides, 1)], 1, 1)


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_only_the_callers_thread_asks_a_device_for_large_products(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    asking: list[int] = []

    def multiply(a: Float64Array, b: Float64Array) -> Float64Array:
        asking.append(get_ident())
        return a @ b

    monkeypatch.setattr(large_products, "LARGE", 1)
    monkeypatch.setattr(large_products, "_installed", [multiply])
    problem = make_problem("matmul")
    found = made(problem, whole_batch(problem), room)
    assert len(asking) >= 2 * len(found)
    assert set(asking) == {get_ident()}


def test_a_draw_takes_inputs_as_they_are_drawn_and_three_numbers_a_result() -> None:
    assert bytes_of_draw(make_problem("dot", axes={"n": 1000})) == 8 * 2000 + 24
    assert bytes_of_draw(make_problem("reverse", axes={"n": 1000})) == 8 * 1000 + 24 * 1000


def test_there_is_room_for_one_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem("reverse", axes={"n": 1000})
    for available, fitting in [(0, 1), (MEMORY_SHARE * 32_000, 1), (MEMORY_SHARE * 7 * 32_000, 7)]:
        monkeypatch.setattr(drawn_at_once, "available_bytes", lambda available=available: available)
        assert room_for(problem) == Room(fitting, num_cores())
