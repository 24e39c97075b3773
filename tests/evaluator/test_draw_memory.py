"""Draws of large tasks follow the memory that a device has free."""

import pytest

from services.evaluator.checking.draw_memory import Held, held_draws, num_changed, resident_bytes
from services.evaluator.checking.draws import kinds_of
from sparsesmith.errors import LimitExceeded
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Workload

GIB = 2**30


def make_task(name: str, **axes: int) -> Problem:
    return Problem(Workload(operation=name, element_type="float32", axes=axes))


def test_a_small_task_has_inputs_of_all_kinds() -> None:
    problem = make_task("relu", n=2**20)
    assert held_draws(problem, 80 * GIB) == Held(len(kinds_of(problem)), 3)


@pytest.mark.parametrize("free_gib", [70, 79, 140])
def test_two_kinds_of_the_largest_sizes_fit_a_card_of_80_gb(free_gib: int) -> None:
    for problem in (
        make_task("relu", n=2**28),
        make_task("reverse", n=2**28),
        make_task("copy", rows=2**14, cols=2**14),
        make_task("transpose", rows=2**14, cols=2**14),
        make_task("matmul", m=2**16, k=4096, n=2048),
    ):
        held = held_draws(problem, free_gib * GIB)
        assert 2 <= held.num_draws <= 4
        assert held.num_fresh >= 2
        assert resident_bytes(problem, held.num_draws) <= free_gib * GIB


def test_fewer_kinds_where_less_is_free_and_never_fewer_than_two() -> None:
    problem = make_task("relu", n=2**26)
    kinds = [held_draws(problem, free_gib * GIB).num_draws for free_gib in (80, 27, 24, 20, 17)]
    assert kinds == sorted(kinds, reverse=True)
    assert (kinds[0], kinds[-1]) == (6, 2)


def test_what_does_not_fit_with_two_kinds_says_both_numbers_in_bytes() -> None:
    problem = make_task("matmul", m=2**18, k=4096, n=2048)
    needed = resident_bytes(problem, 2)
    assert needed > 80 * GIB
    with pytest.raises(LimitExceeded, match=f"about {needed} bytes .* 2 kinds, {80 * GIB} bytes are free") as raised:
        held_draws(problem, 80 * GIB)
    assert (raised.value.field, raised.value.value, raised.value.limit) == ("axes", str(needed), str(80 * GIB))


def test_one_change_is_judged_whatever_memory_it_takes() -> None:
    assert num_changed(make_task("relu", n=2**28)) == 1
    assert num_changed(make_task("relu", n=2**10)) == 12
    more = resident_bytes(make_task("relu", n=2**28), 2) / 2**28
    assert more == pytest.approx(6 * 32 + 24 + 3 * 8)
