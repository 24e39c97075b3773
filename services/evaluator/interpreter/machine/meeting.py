"""Waiting for the other lanes of a collective: it is executed when all live members have come to it."""

from __future__ import annotations

from services.evaluator.interpreter.layout import (
    COLLECTIVE_WARP_BARRIER,
    COLUMN_CODE,
    DEADLOCK_MEMBERS,
    FINDING_DEADLOCK,
    FOUND_DETAIL,
)
from services.evaluator.interpreter.machine.collectives import collective, members_of
from services.evaluator.interpreter.machine.fronts import arrive, push_front, remove_front
from services.evaluator.interpreter.machine.intrinsics import machine_code
from services.evaluator.interpreter.machine.state import (
    AT_COLLECTIVE,
    FRONT_JOIN,
    FRONT_MASK,
    FRONT_PC,
    FRONT_STATE,
    READY,
    WARP_FRONTS,
    WARP_LIVE,
    Machine,
    front_of,
    instruction_of,
    record,
    warp_of,
)


@machine_code
def _awaited(m: Machine, pc: int, warp: int, lanes: int) -> int:
    """The live lanes that the given lanes name as members, beyond themselves."""
    named = 0
    for lane in range(32):
        if lanes >> lane & 1:
            named |= members_of(m, pc, warp, lane)
    return named & warp_of(m, warp)[WARP_LIVE] & ~lanes


@machine_code
def meet(m: Machine, pc: int, warp: int, active: int, mask: int, join: int) -> bool:
    """Execute a collective if all members are here; otherwise park the lanes. True if the front goes on."""
    for lane in range(32):
        if active >> lane & 1 and not members_of(m, pc, warp, lane) >> lane & 1:
            record(m, FINDING_DEADLOCK, pc, warp * 32 + lane, 0, 0, 0)
            m.found[FOUND_DETAIL] = DEADLOCK_MEMBERS
            return False
    if active == mask and not _awaited(m, pc, warp, active):
        collective(m, pc, warp, active)
        return True
    if active != mask:
        push_front(m, warp, pc + 1, mask & ~active, join, READY)
    push_front(m, warp, pc, active, join, AT_COLLECTIVE)
    release_collectives(m, warp)
    return False


@machine_code
def _same_collective(m: Machine, first: int, second: int) -> bool:
    if first == second:
        return True
    barrier = instruction_of(m, first)[COLUMN_CODE] == COLLECTIVE_WARP_BARRIER
    return barrier and instruction_of(m, second)[COLUMN_CODE] == COLLECTIVE_WARP_BARRIER


@machine_code
def release_collectives(m: Machine, warp: int) -> None:
    """Execute the collectives whose members have all arrived (or left the kernel)."""
    index = 0
    while index < warp_of(m, warp)[WARP_FRONTS]:
        if front_of(m, warp, index)[FRONT_STATE] == AT_COLLECTIVE:
            pc = front_of(m, warp, index)[FRONT_PC]
            together, awaited = 0, 0
            for other in range(warp_of(m, warp)[WARP_FRONTS]):
                place = front_of(m, warp, other)[FRONT_PC]
                if front_of(m, warp, other)[FRONT_STATE] == AT_COLLECTIVE and _same_collective(m, pc, place):
                    together |= front_of(m, warp, other)[FRONT_MASK]
                    awaited |= _awaited(m, place, warp, front_of(m, warp, other)[FRONT_MASK])
            if not awaited & ~together:
                collective(m, pc, warp, together)
                _resume(m, warp, pc)
                index = -1
        index += 1


@machine_code
def _resume(m: Machine, warp: int, pc: int) -> None:
    """Let all fronts that waited at a completed collective go on."""
    index = 0
    while index < warp_of(m, warp)[WARP_FRONTS]:
        place = front_of(m, warp, index)[FRONT_PC]
        if front_of(m, warp, index)[FRONT_STATE] == AT_COLLECTIVE and _same_collective(m, pc, place):
            mask, join = front_of(m, warp, index)[FRONT_MASK], front_of(m, warp, index)[FRONT_JOIN]
            remove_front(m, warp, index)
            arrive(m, warp, place + 1, mask, join)
            index = -1
        index += 1
