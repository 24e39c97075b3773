"""Block barriers: bar.sync, bar.arrive and bar.red, numbered and counted; their order is noted for the race check."""

from __future__ import annotations

from services.evaluator.interpreter.layout import (
    BARRIER_AND,
    BARRIER_OR,
    BARRIER_POPC,
    COLUMN_CODE,
    COLUMN_D0,
    COLUMN_S0,
    COLUMN_S1,
    COLUMN_S2,
    COLUMN_SIGNED,
    COUNT_BARRIERS,
    COUNT_FULL_BARRIER,
    COUNT_STEPS,
    DEADLOCK_DIVERGENT_BARRIER,
    FINDING_DEADLOCK,
    FOUND_DETAIL,
)
from services.evaluator.interpreter.machine.collectives import fill, set_predicate
from services.evaluator.interpreter.machine.fronts import arrive, push_front, remove_front
from services.evaluator.interpreter.machine.intrinsics import lowest_bit, machine_code, popcount
from services.evaluator.interpreter.machine.state import (
    ALL_LANES,
    AT_BARRIER,
    FRONT_JOIN,
    FRONT_MASK,
    FRONT_PC,
    FRONT_STATE,
    LAUNCH_WARPS,
    NUM_BARRIERS,
    WARP_AFTER_GRID,
    WARP_FRONTS,
    WARP_LIVE,
    Machine,
    as_int64,
    front_of,
    instruction_of,
    record,
    registers_of,
    warp_of,
)

NUMBER_MASK = NUM_BARRIERS - 1


@machine_code
def wait_at_barrier(m: Machine, pc: int, warp: int, active: int, mask: int, join: int) -> None:
    """Park lanes at a block barrier; a finding if a guard keeps lanes of the same front away from it."""
    push_front(m, warp, pc, active, join, AT_BARRIER)
    if mask != active:
        record_divergent_barrier(m, pc, warp, mask & ~active)


@machine_code
def barrier_number(m: Machine, pc: int, warp: int, mask: int) -> int:
    row = (registers_of(m, warp) + instruction_of(m, pc)[COLUMN_S0]) >> 2
    return as_int64(m.words[row + lowest_bit(mask)]) & NUMBER_MASK


@machine_code
def _waiting_lanes(m: Machine, warp: int, number: int) -> int:
    lanes = 0
    for index in range(warp_of(m, warp)[WARP_FRONTS]):
        if front_of(m, warp, index)[FRONT_STATE] == AT_BARRIER:
            mask = front_of(m, warp, index)[FRONT_MASK]
            if barrier_number(m, front_of(m, warp, index)[FRONT_PC], warp, mask) == number:
                lanes |= mask
    return lanes


@machine_code
def release_barrier(m: Machine, number: int) -> bool:
    """Complete a block barrier if enough threads wait at it."""
    arrived, complete, warps, expected = m.barriers[2 * number + 0], True, m.barriers[2 * number + 1], 0
    waits = False
    for warp in range(m.launch[LAUNCH_WARPS]):
        lanes, live = _waiting_lanes(m, warp, number), warp_of(m, warp)[WARP_LIVE]
        complete = complete and lanes == live
        if lanes:
            waits = True
            warps |= 1 << warp
            arrived += 32 if lanes == live else popcount(lanes)
            expected = max(expected, _expected_threads(m, warp, number))
    if not waits or (arrived < expected if expected else not complete):
        return False
    _combine_predicates(m, number)
    _order_warps(m, warps, complete)
    if complete:
        _spread_wait_for_grid(m)
    for warp in range(m.launch[LAUNCH_WARPS]):
        _resume_barrier(m, warp, number)
    m.barriers[2 * number] = m.barriers[2 * number + 1] = 0
    m.counters[COUNT_BARRIERS] += 1
    return True


@machine_code
def _expected_threads(m: Machine, warp: int, number: int) -> int:
    for index in range(warp_of(m, warp)[WARP_FRONTS]):
        if front_of(m, warp, index)[FRONT_STATE] == AT_BARRIER:
            pc, mask = front_of(m, warp, index)[FRONT_PC], front_of(m, warp, index)[FRONT_MASK]
            if barrier_number(m, pc, warp, mask) == number:
                row = (registers_of(m, warp) + instruction_of(m, pc)[COLUMN_S1]) >> 2
                return as_int64(m.words[row + lowest_bit(mask)])
    return 0


@machine_code
def _order_warps(m: Machine, warps: int, complete: bool) -> None:
    """Everything the warps of a barrier did before it is ordered before what they do after it."""
    now, count = m.counters[COUNT_STEPS], m.launch[LAUNCH_WARPS]
    if complete:
        m.counters[COUNT_FULL_BARRIER] = now
        return
    for other in range(count):
        latest = now if warps >> other & 1 else 0
        for warp in range(count):
            if warps >> warp & 1:
                latest = max(latest, m.seen[warp * m.launch[LAUNCH_WARPS] + other])
        for warp in range(count):
            if warps >> warp & 1:
                m.seen[warp * m.launch[LAUNCH_WARPS] + other] = latest


@machine_code
def _spread_wait_for_grid(m: Machine) -> None:
    """Where one thread has waited for the kernels before, all that meet it at a barrier come after those, too."""
    waited = 0
    for warp in range(m.launch[LAUNCH_WARPS]):
        waited |= warp_of(m, warp)[WARP_AFTER_GRID]
    if waited:
        for warp in range(m.launch[LAUNCH_WARPS]):
            warp_of(m, warp)[WARP_AFTER_GRID] |= warp_of(m, warp)[WARP_LIVE]


@machine_code
def _combine_predicates(m: Machine, number: int) -> None:
    """Results of bar.red: count, and, or over all threads at the barrier."""
    ones, threads = 0, 0
    for warp in range(m.launch[LAUNCH_WARPS]):
        for index in range(warp_of(m, warp)[WARP_FRONTS]):
            if _waits_at(m, warp, index, number):
                pc, mask = front_of(m, warp, index)[FRONT_PC], front_of(m, warp, index)[FRONT_MASK]
                if instruction_of(m, pc)[COLUMN_CODE] >= BARRIER_POPC:
                    row = (registers_of(m, warp) + instruction_of(m, pc)[COLUMN_S2]) >> 2
                    ones += popcount(as_int64(m.words[row]) & mask)
                    threads += popcount(mask)
    for warp in range(m.launch[LAUNCH_WARPS]):
        for index in range(warp_of(m, warp)[WARP_FRONTS]):
            if _waits_at(m, warp, index, number):
                pc, mask = front_of(m, warp, index)[FRONT_PC], front_of(m, warp, index)[FRONT_MASK]
                mode = instruction_of(m, pc)[COLUMN_CODE]
                row = registers_of(m, warp) + instruction_of(m, pc)[COLUMN_D0]
                if mode == BARRIER_POPC:
                    fill(m, pc, warp, mask, ones)
                elif mode == BARRIER_AND:
                    set_predicate(m, row, mask, ALL_LANES if ones == threads else 0)
                elif mode == BARRIER_OR:
                    set_predicate(m, row, mask, ALL_LANES if ones else 0)


@machine_code
def _waits_at(m: Machine, warp: int, index: int, number: int) -> bool:
    if front_of(m, warp, index)[FRONT_STATE] != AT_BARRIER:
        return False
    pc, mask = front_of(m, warp, index)[FRONT_PC], front_of(m, warp, index)[FRONT_MASK]
    return barrier_number(m, pc, warp, mask) == number


@machine_code
def _resume_barrier(m: Machine, warp: int, number: int) -> None:
    first = -1
    index = 0
    while index < warp_of(m, warp)[WARP_FRONTS]:
        if _waits_at(m, warp, index, number):
            pc, mask = front_of(m, warp, index)[FRONT_PC], front_of(m, warp, index)[FRONT_MASK]
            if instruction_of(m, pc)[COLUMN_SIGNED] and first >= 0 and first != pc:
                record_divergent_barrier(m, pc, warp, mask)
                return
            first = pc
            join = front_of(m, warp, index)[FRONT_JOIN]
            remove_front(m, warp, index)
            arrive(m, warp, pc + 1, mask, join)
            index = -1
        index += 1


@machine_code
def record_divergent_barrier(m: Machine, pc: int, warp: int, mask: int) -> None:
    record(m, FINDING_DEADLOCK, pc, warp * 32 + lowest_bit(mask), 0, 0, 0)
    m.found[FOUND_DETAIL] = DEADLOCK_DIVERGENT_BARRIER
