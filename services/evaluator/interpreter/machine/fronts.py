"""Fronts (groups of lanes of a warp that run together) and joins (places where diverged lanes are awaited)."""

from __future__ import annotations

from services.evaluator.interpreter.machine.intrinsics import at, machine_code
from services.evaluator.interpreter.machine.state import (
    FRONT_JOIN,
    FRONT_MASK,
    FRONT_PC,
    FRONT_STATE,
    JOIN_ARRIVED,
    JOIN_EXPECTED,
    JOIN_PARENT,
    JOIN_PC,
    MAX_FRONTS,
    MAX_JOINS,
    NUM_FRONT,
    NUM_JOIN,
    READY,
    WARP_FRONTS,
    WARP_LIVE,
    Machine,
    front_of,
    join_of,
    warp_of,
)


@machine_code
def push_front(m: Machine, warp: int, pc: int, mask: int, join: int, state: int) -> None:
    place = warp_of(m, warp)[WARP_FRONTS]
    front_of(m, warp, place)[FRONT_PC] = pc
    front_of(m, warp, place)[FRONT_MASK] = mask
    front_of(m, warp, place)[FRONT_JOIN] = join
    front_of(m, warp, place)[FRONT_STATE] = state
    warp_of(m, warp)[WARP_FRONTS] = place + 1


@machine_code
def remove_front(m: Machine, warp: int, index: int) -> None:
    last = warp_of(m, warp)[WARP_FRONTS] - 1
    first = warp * MAX_FRONTS * NUM_FRONT
    for number in range(first + index * NUM_FRONT, first + last * NUM_FRONT):
        m.fronts[number] = m.fronts[number + NUM_FRONT]
    warp_of(m, warp)[WARP_FRONTS] = last


@machine_code
def push_behind(m: Machine, warp: int, pc: int, mask: int, join: int) -> None:
    """Put a front where it runs after all others."""
    push_front(m, warp, pc, mask, join, READY)
    first = warp * MAX_FRONTS * NUM_FRONT
    for number in range(first + warp_of(m, warp)[WARP_FRONTS] * NUM_FRONT - 1, first + NUM_FRONT - 1, -1):
        m.fronts[number] = m.fronts[number - NUM_FRONT]
    m.fronts[first + FRONT_PC] = pc
    m.fronts[first + FRONT_MASK] = mask
    m.fronts[first + FRONT_JOIN] = join
    m.fronts[first + FRONT_STATE] = READY


@machine_code
def next_ready(m: Machine, warp: int) -> int:
    for index in range(warp_of(m, warp)[WARP_FRONTS] - 1, -1, -1):
        if front_of(m, warp, index)[FRONT_STATE] == READY:
            return index
    return -1


@machine_code
def arrive(m: Machine, warp: int, pc: int, mask: int, join: int) -> None:
    """A front has reached pc: it waits there if that is its join, until all lanes of the join have come."""
    joins = at(m.joins, warp * MAX_JOINS * NUM_JOIN)
    while join >= 0 and joins[join * NUM_JOIN + JOIN_PC] == pc:
        joins[join * NUM_JOIN + JOIN_ARRIVED] |= mask
        if joins[join * NUM_JOIN + JOIN_ARRIVED] != joins[join * NUM_JOIN + JOIN_EXPECTED]:
            return
        mask = joins[join * NUM_JOIN + JOIN_ARRIVED]
        joins[join * NUM_JOIN + JOIN_EXPECTED] = 0
        join = joins[join * NUM_JOIN + JOIN_PARENT]
    push_front(m, warp, pc, mask, join, READY)


@machine_code
def leave(m: Machine, warp: int, mask: int, join: int) -> None:
    """Lanes leave the kernel: nobody waits for them any more."""
    warp_of(m, warp)[WARP_LIVE] &= ~mask
    joins = at(m.joins, warp * MAX_JOINS * NUM_JOIN)
    while join >= 0:
        parent = joins[join * NUM_JOIN + JOIN_PARENT]
        joins[join * NUM_JOIN + JOIN_EXPECTED] &= ~mask
        expected = joins[join * NUM_JOIN + JOIN_EXPECTED]
        if expected and joins[join * NUM_JOIN + JOIN_ARRIVED] == expected:
            joins[join * NUM_JOIN + JOIN_EXPECTED] = 0
            arrive(m, warp, joins[join * NUM_JOIN + JOIN_PC], expected, parent)
        join = parent


@machine_code
def open_join(m: Machine, warp: int, pc: int, mask: int, parent: int) -> int:
    if pc < 0 or (parent >= 0 and join_of(m, warp, parent)[JOIN_PC] == pc):
        return parent
    for index in range(MAX_JOINS):
        if join_of(m, warp, index)[JOIN_EXPECTED] == 0:
            join_of(m, warp, index)[JOIN_PC] = pc
            join_of(m, warp, index)[JOIN_EXPECTED] = mask
            join_of(m, warp, index)[JOIN_ARRIVED] = 0
            join_of(m, warp, index)[JOIN_PARENT] = parent
            return index
    return parent
