"""The machine: warps of 32 lanes run in lockstep, diverge, meet again, and wait at collectives and barriers.

Lanes that took different paths are separate **fronts** of a warp. A divergent branch opens a **join** at the immediate
post-dominator; a front that reaches it waits until the lanes that are expected there have arrived or left the kernel. A
front that must wait for other lanes (collective, barrier) steps aside for the others, as on devices with independent
thread scheduling. Warps and fronts take turns after a slice of instructions, so that spinning lanes do not starve those
they wait for. Blocks run one after another: a block that waits for a later one ends at the step limit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
from numba import njit

from services.evaluator.interpreter.atomics import atomic, phase_barrier
from services.evaluator.interpreter.collectives import collective, members_of, set_predicate
from services.evaluator.interpreter.layout import (
    BARRIER_AND,
    BARRIER_ARRIVE,
    BARRIER_OR,
    BARRIER_POPC,
    COLLECTIVE_WARP_BARRIER,
    COLUMN_CODE,
    COLUMN_D0,
    COLUMN_D1,
    COLUMN_D2,
    COLUMN_D3,
    COLUMN_GUARD,
    COLUMN_GUARD_NEGATED,
    COLUMN_JOIN,
    COLUMN_KIND,
    COLUMN_S0,
    COLUMN_S1,
    COLUMN_S2,
    COLUMN_S3,
    COLUMN_SIGNED,
    COLUMN_TARGET,
    COLUMN_WAITS,
    COLUMN_WIDE,
    COUNT_BARRIERS,
    COUNT_BLOCK,
    COUNT_BLOCKS,
    COUNT_BLOCK_START,
    COUNT_DIVERGENT_BRANCHES,
    COUNT_FENCE_BEFORE,
    COUNT_FENCE_TIME,
    COUNT_FULL_BARRIER,
    COUNT_LONGEST_INSTRUCTIONS,
    COUNT_LONGEST_WAITS,
    COUNT_STEPS,
    FINDING_DEADLOCK,
    FINDING_STEP_LIMIT,
    FINDING_TRAP,
    FOUND_DETAIL,
    FOUND_KIND,
    KIND_ACTIVE_MASK,
    KIND_ATOMIC,
    KIND_BARRIER,
    KIND_BRANCH,
    KIND_CLOCK,
    KIND_COLLECTIVE,
    KIND_COPY,
    KIND_FENCE,
    KIND_LOAD,
    KIND_OPERATION,
    KIND_PHASE_BARRIER,
    KIND_RETURN,
    KIND_STORE,
    KIND_TRAP,
    NUM_COLUMNS,
    NUM_PROFILE,
    PROFILE_INSTRUCTIONS,
    PROFILE_LANES,
    SPECIAL_OFFSET,
)
from services.evaluator.interpreter.memory import copy, load, store
from services.evaluator.interpreter.operations import execute_operation
from services.evaluator.interpreter.state import (
    ALL_LANES,
    AT_BARRIER,
    AT_COLLECTIVE,
    FRONT_JOIN,
    FRONT_MASK,
    FRONT_PC,
    FRONT_STATE,
    JOIN_ARRIVED,
    JOIN_EXPECTED,
    JOIN_PARENT,
    JOIN_PC,
    LAUNCH_GRID_X,
    LAUNCH_GRID_Y,
    LAUNCH_MAX_STEPS,
    LAUNCH_REGISTER_BYTES,
    LAUNCH_STRIDE,
    LAUNCH_THREADS,
    LAUNCH_WARPS,
    MAX_FRONTS,
    MAX_JOINS,
    NUM_BARRIERS,
    NUM_FRONT,
    NUM_JOIN,
    NUM_WARP,
    READY,
    WARP_FRONTS,
    WARP_INSTRUCTIONS,
    WARP_LIVE,
    WARP_WAITS,
    Machine,
    Memory,
    address_of,
    at,
    lowest_bit,
    machine_of,
    popcount,
    record,
)

SLICE_STEPS = 4096
DEADLOCK_COLLECTIVE, DEADLOCK_BARRIER, DEADLOCK_DIVERGENT_BARRIER, DEADLOCK_MEMBERS = range(4)


@njit
def _start_block(m: Machine, block: int) -> None:
    launch, counters = m.launch, m.counters
    counters[COUNT_BLOCK] = block
    counters[COUNT_BLOCK_START] = counters[COUNT_STEPS] + 1
    counters[COUNT_FENCE_BEFORE] = counters[COUNT_FENCE_TIME]
    counters[COUNT_BLOCKS] += 1
    position_x = block % launch[LAUNCH_GRID_X]
    position_y = block // launch[LAUNCH_GRID_X] % launch[LAUNCH_GRID_Y]
    position_z = block // (launch[LAUNCH_GRID_X] * launch[LAUNCH_GRID_Y])
    threads = launch[LAUNCH_THREADS]
    for index in range(2 * NUM_BARRIERS):
        m.barriers[index] = 0
    for index in range(launch[LAUNCH_WARPS] * launch[LAUNCH_WARPS]):
        m.seen[index] = 0
    for warp in range(launch[LAUNCH_WARPS]):
        row = (warp * launch[LAUNCH_REGISTER_BYTES] + SPECIAL_OFFSET + 3 * 128) >> 2
        for lane in range(32):
            m.words[row + lane] = np.uint32(position_x)
            m.words[row + 32 + lane] = np.uint32(position_y)
            m.words[row + 64 + lane] = np.uint32(position_z)
        lanes = min(32, threads - warp * 32)
        m.warps[warp * NUM_WARP + WARP_LIVE] = (np.int64(1) << lanes) - 1
        m.warps[warp * NUM_WARP + WARP_FRONTS] = 0
        m.warps[warp * NUM_WARP + WARP_INSTRUCTIONS] = 0
        m.warps[warp * NUM_WARP + WARP_WAITS] = 0
        for index in range(MAX_JOINS):
            m.joins[(warp * MAX_JOINS + index) * NUM_JOIN + JOIN_EXPECTED] = 0
        _push_front(m, warp, 0, m.warps[warp * NUM_WARP + WARP_LIVE], -1, READY)


@njit
def _finish_block(m: Machine) -> None:
    counters = m.counters
    for warp in range(m.launch[LAUNCH_WARPS]):
        if m.warps[warp * NUM_WARP + WARP_INSTRUCTIONS] > counters[COUNT_LONGEST_INSTRUCTIONS]:
            counters[COUNT_LONGEST_INSTRUCTIONS] = m.warps[warp * NUM_WARP + WARP_INSTRUCTIONS]
        if m.warps[warp * NUM_WARP + WARP_WAITS] > counters[COUNT_LONGEST_WAITS]:
            counters[COUNT_LONGEST_WAITS] = m.warps[warp * NUM_WARP + WARP_WAITS]


@njit
def _run_block(m: Machine) -> None:
    while True:
        ran = False
        for warp in range(m.launch[LAUNCH_WARPS]):
            if _next_ready(m, warp) >= 0:
                ran = True
                _run_warp(m, warp)
                if m.found[FOUND_KIND]:
                    return
        if not ran and not _release_waiting(m):
            return
        if m.found[FOUND_KIND]:
            return


@njit
def _release_waiting(m: Machine) -> bool:
    """When no lane can run: complete a barrier. False if all lanes have left; a finding if nothing can complete."""
    waiting = False
    for warp in range(m.launch[LAUNCH_WARPS]):
        waiting = waiting or m.warps[warp * NUM_WARP + WARP_FRONTS] > 0 or m.warps[warp * NUM_WARP + WARP_LIVE] != 0
    if not waiting:
        return False
    released = False
    for number in range(NUM_BARRIERS):
        if _release_barrier(m, number):
            released = True
    if not released:
        _record_deadlock(m)
    return True


# -- fronts and joins -------------------------------------------------------------------------------------------------
@njit
def _push_front(m: Machine, warp: int, pc: int, mask: int, join: int, state: int) -> None:
    place = m.warps[warp * NUM_WARP + WARP_FRONTS]
    m.fronts[(warp * MAX_FRONTS + place) * NUM_FRONT + FRONT_PC] = pc
    m.fronts[(warp * MAX_FRONTS + place) * NUM_FRONT + FRONT_MASK] = mask
    m.fronts[(warp * MAX_FRONTS + place) * NUM_FRONT + FRONT_JOIN] = join
    m.fronts[(warp * MAX_FRONTS + place) * NUM_FRONT + FRONT_STATE] = state
    m.warps[warp * NUM_WARP + WARP_FRONTS] = place + 1


@njit
def _remove_front(m: Machine, warp: int, index: int) -> None:
    last = m.warps[warp * NUM_WARP + WARP_FRONTS] - 1
    first = warp * MAX_FRONTS * NUM_FRONT
    for number in range(first + index * NUM_FRONT, first + last * NUM_FRONT):
        m.fronts[number] = m.fronts[number + NUM_FRONT]
    m.warps[warp * NUM_WARP + WARP_FRONTS] = last


@njit
def _push_behind(m: Machine, warp: int, pc: int, mask: int, join: int) -> None:
    """Put a front where it runs after all others."""
    _push_front(m, warp, pc, mask, join, READY)
    first = warp * MAX_FRONTS * NUM_FRONT
    for number in range(first + m.warps[warp * NUM_WARP + WARP_FRONTS] * NUM_FRONT - 1, first + NUM_FRONT - 1, -1):
        m.fronts[number] = m.fronts[number - NUM_FRONT]
    m.fronts[first + FRONT_PC] = pc
    m.fronts[first + FRONT_MASK] = mask
    m.fronts[first + FRONT_JOIN] = join
    m.fronts[first + FRONT_STATE] = READY


@njit
def _next_ready(m: Machine, warp: int) -> int:
    for index in range(m.warps[warp * NUM_WARP + WARP_FRONTS] - 1, -1, -1):
        if m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_STATE] == READY:
            return index
    return -1


@njit
def _arrive(m: Machine, warp: int, pc: int, mask: int, join: int) -> None:
    """A front has reached pc: let it wait at its join if that is the place, and go on with the join's lanes when all came."""
    joins = at(m.joins, warp * MAX_JOINS * NUM_JOIN)
    while join >= 0 and joins[join * NUM_JOIN + JOIN_PC] == pc:
        joins[join * NUM_JOIN + JOIN_ARRIVED] |= mask
        if joins[join * NUM_JOIN + JOIN_ARRIVED] != joins[join * NUM_JOIN + JOIN_EXPECTED]:
            return
        mask = joins[join * NUM_JOIN + JOIN_ARRIVED]
        joins[join * NUM_JOIN + JOIN_EXPECTED] = 0
        join = joins[join * NUM_JOIN + JOIN_PARENT]
    _push_front(m, warp, pc, mask, join, READY)


@njit
def _leave(m: Machine, warp: int, mask: int, join: int) -> None:
    """Lanes leave the kernel: nobody waits for them any more."""
    m.warps[warp * NUM_WARP + WARP_LIVE] &= ~mask
    joins = at(m.joins, warp * MAX_JOINS * NUM_JOIN)
    while join >= 0:
        parent = joins[join * NUM_JOIN + JOIN_PARENT]
        joins[join * NUM_JOIN + JOIN_EXPECTED] &= ~mask
        expected = joins[join * NUM_JOIN + JOIN_EXPECTED]
        if expected and joins[join * NUM_JOIN + JOIN_ARRIVED] == expected:
            joins[join * NUM_JOIN + JOIN_EXPECTED] = 0
            _arrive(m, warp, joins[join * NUM_JOIN + JOIN_PC], expected, parent)
        join = parent


@njit
def _open_join(m: Machine, warp: int, pc: int, mask: int, parent: int) -> int:
    if pc < 0 or (parent >= 0 and m.joins[(warp * MAX_JOINS + parent) * NUM_JOIN + JOIN_PC] == pc):
        return parent
    for index in range(MAX_JOINS):
        if m.joins[(warp * MAX_JOINS + index) * NUM_JOIN + JOIN_EXPECTED] == 0:
            m.joins[(warp * MAX_JOINS + index) * NUM_JOIN + JOIN_PC] = pc
            m.joins[(warp * MAX_JOINS + index) * NUM_JOIN + JOIN_EXPECTED] = mask
            m.joins[(warp * MAX_JOINS + index) * NUM_JOIN + JOIN_ARRIVED] = 0
            m.joins[(warp * MAX_JOINS + index) * NUM_JOIN + JOIN_PARENT] = parent
            return index
    return parent


# -- instructions -----------------------------------------------------------------------------------------------------
@njit
def _run_warp(m: Machine, warp: int) -> None:
    """Run fronts of a warp until all wait or have left, or the slice is used up."""
    budget = SLICE_STEPS
    while True:
        index = _next_ready(m, warp)
        if index < 0:
            return
        pc = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_PC]
        mask = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_MASK]
        join = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_JOIN]
        _remove_front(m, warp, index)
        budget = _run_front(m, warp, pc, mask, join, budget)
        if budget <= 0 or m.found[FOUND_KIND]:
            return


@njit
def _run_front(m: Machine, warp: int, pc: int, mask: int, join: int, budget: int) -> int:
    """Run a group of lanes until it waits, splits, meets or leaves; returns what is left of the budget of steps."""
    code, words, counters, profile = m.code, m.words, m.counters, m.profile
    base = warp * m.launch[LAUNCH_REGISTER_BYTES]
    rows = address_of(words) + base
    stop = m.joins[(warp * MAX_JOINS + join) * NUM_JOIN + JOIN_PC] if join >= 0 else -1
    limit = m.launch[LAUNCH_MAX_STEPS]
    statistics = at(m.warps, warp * NUM_WARP)
    while True:
        if pc == stop:
            _arrive(m, warp, pc, mask, join)
            return budget
        if budget <= 0:
            _push_behind(m, warp, pc, mask, join)
            return budget
        budget -= 1
        row = at(code, pc * NUM_COLUMNS)
        kind = row[COLUMN_KIND]
        now = counters[COUNT_STEPS] + 1
        counters[COUNT_STEPS] = now
        if now > limit:
            record(m, FINDING_STEP_LIMIT, pc, warp * 32 + lowest_bit(mask), 0, 0, 0)
            return budget
        statistics[WARP_INSTRUCTIONS] += 1
        statistics[WARP_WAITS] += row[COLUMN_WAITS]
        active = mask
        if row[COLUMN_GUARD] >= 0:
            guard = np.int64(words[(base + row[COLUMN_GUARD]) >> 2])
            if row[COLUMN_GUARD_NEGATED]:
                guard = ~guard
            active = mask & guard
        profile[pc * NUM_PROFILE + PROFILE_INSTRUCTIONS] += 1
        profile[pc * NUM_PROFILE + PROFILE_LANES] += popcount(active)
        if kind == KIND_OPERATION:
            if active:
                execute_operation(
                    row[COLUMN_CODE],
                    rows + row[COLUMN_D0],
                    rows + row[COLUMN_D1],
                    rows + row[COLUMN_D2],
                    rows + row[COLUMN_D3],
                    rows + row[COLUMN_S0],
                    rows + row[COLUMN_S1],
                    rows + row[COLUMN_S2],
                    rows + row[COLUMN_S3],
                    np.uint32(active),
                )
            pc += 1
        elif kind == KIND_BRANCH:
            if active == mask:
                pc = row[COLUMN_TARGET]
            elif active == 0:
                pc += 1
            else:
                counters[COUNT_DIVERGENT_BRANCHES] += 1
                inner = _open_join(m, warp, row[COLUMN_JOIN], mask, join)
                _arrive(m, warp, row[COLUMN_TARGET], active, inner)
                _arrive(m, warp, pc + 1, mask & ~active, inner)
                return budget
        elif active == 0:
            pc += 1
        elif kind == KIND_RETURN:
            _leave(m, warp, active, join)
            _release_collectives(m, warp)
            mask &= ~active
            if mask == 0 or m.found[FOUND_KIND]:
                return budget
            pc += 1
        elif kind == KIND_BARRIER and row[COLUMN_CODE] != BARRIER_ARRIVE:
            _push_front(m, warp, pc, active, join, AT_BARRIER)
            mask &= ~active
            if mask == 0:
                return budget
            _record_divergent_barrier(m, pc, warp, mask)
            return budget
        elif kind == KIND_COLLECTIVE:
            if not _meet(m, pc, warp, active, mask, join):
                return budget
            pc += 1
        else:
            _execute(m, pc, kind, warp, active, now)
            if m.found[FOUND_KIND]:
                return budget
            pc += 1


@njit
def _execute(m: Machine, pc: int, kind: int, warp: int, active: int, now: int) -> None:
    """Execute an instruction that does not change the flow of control."""
    if kind == KIND_LOAD:
        load(m, pc, warp, active, now)
    elif kind == KIND_STORE:
        store(m, pc, warp, active, now)
    elif kind == KIND_ATOMIC:
        atomic(m, pc, warp, active, now)
    elif kind == KIND_COPY:
        copy(m, pc, warp, active, now)
    elif kind == KIND_PHASE_BARRIER:
        phase_barrier(m, pc, warp, active, now)
    elif kind == KIND_FENCE:
        m.counters[COUNT_FENCE_TIME] = now
    elif kind == KIND_BARRIER:
        number = _barrier_number(m, pc, warp, active)
        m.barriers[2 * number + 0] += 32
        m.barriers[2 * number + 1] |= np.int64(1) << warp
    elif kind == KIND_TRAP:
        record(m, FINDING_TRAP, pc, warp * 32 + lowest_bit(active), 0, 0, 0)
    elif kind == KIND_CLOCK or kind == KIND_ACTIVE_MASK:
        _fill(m, pc, warp, active, now if kind == KIND_CLOCK else active)


@njit
def _fill(m: Machine, pc: int, warp: int, active: int, value: int) -> None:
    row = at(m.code, pc * NUM_COLUMNS)
    target = warp * m.launch[LAUNCH_REGISTER_BYTES] + row[COLUMN_D0]
    for lane in range(32):
        if active >> lane & 1:
            if row[COLUMN_WIDE]:
                m.longs[(target >> 3) + lane] = np.uint64(value)
            else:
                m.words[(target >> 2) + lane] = np.uint32(value & 0xFFFFFFFF)


# -- collectives ------------------------------------------------------------------------------------------------------
@njit
def _awaited(m: Machine, pc: int, warp: int, lanes: int) -> int:
    """The live lanes that the given lanes name as members, beyond themselves."""
    named = np.int64(0)
    for lane in range(32):
        if lanes >> lane & 1:
            named |= members_of(m, pc, warp, lane)
    return named & m.warps[warp * NUM_WARP + WARP_LIVE] & ~lanes


@njit
def _meet(m: Machine, pc: int, warp: int, active: int, mask: int, join: int) -> bool:
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
        _push_front(m, warp, pc + 1, mask & ~active, join, READY)
    _push_front(m, warp, pc, active, join, AT_COLLECTIVE)
    _release_collectives(m, warp)
    return False


@njit
def _same_collective(m: Machine, first: int, second: int) -> bool:
    if first == second:
        return True
    barrier = m.code[first * NUM_COLUMNS + COLUMN_CODE] == COLLECTIVE_WARP_BARRIER
    return barrier and m.code[second * NUM_COLUMNS + COLUMN_CODE] == COLLECTIVE_WARP_BARRIER


@njit
def _release_collectives(m: Machine, warp: int) -> None:
    """Execute the collectives whose members have all arrived (or left the kernel)."""
    index = 0
    while index < m.warps[warp * NUM_WARP + WARP_FRONTS]:
        if m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_STATE] == AT_COLLECTIVE:
            pc = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_PC]
            together, awaited = np.int64(0), np.int64(0)
            for other in range(m.warps[warp * NUM_WARP + WARP_FRONTS]):
                place = m.fronts[(warp * MAX_FRONTS + other) * NUM_FRONT + FRONT_PC]
                if m.fronts[(warp * MAX_FRONTS + other) * NUM_FRONT + FRONT_STATE] == AT_COLLECTIVE and _same_collective(m, pc, place):
                    together |= m.fronts[(warp * MAX_FRONTS + other) * NUM_FRONT + FRONT_MASK]
                    awaited |= _awaited(m, place, warp, m.fronts[(warp * MAX_FRONTS + other) * NUM_FRONT + FRONT_MASK])
            if not awaited & ~together:
                collective(m, pc, warp, together)
                _resume(m, warp, pc)
                index = -1
        index += 1


@njit
def _resume(m: Machine, warp: int, pc: int) -> None:
    """Let all fronts that waited at a completed collective go on."""
    index = 0
    while index < m.warps[warp * NUM_WARP + WARP_FRONTS]:
        place = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_PC]
        if m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_STATE] == AT_COLLECTIVE and _same_collective(m, pc, place):
            mask, join = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_MASK], m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_JOIN]
            _remove_front(m, warp, index)
            _arrive(m, warp, place + 1, mask, join)
            index = -1
        index += 1


# -- barriers ---------------------------------------------------------------------------------------------------------
@njit
def _barrier_number(m: Machine, pc: int, warp: int, mask: int) -> int:
    row = (warp * m.launch[LAUNCH_REGISTER_BYTES] + m.code[pc * NUM_COLUMNS + COLUMN_S0]) >> 2
    return np.int64(m.words[row + lowest_bit(mask)]) & (NUM_BARRIERS - 1)


@njit
def _waiting_lanes(m: Machine, warp: int, number: int) -> int:
    lanes = np.int64(0)
    for index in range(m.warps[warp * NUM_WARP + WARP_FRONTS]):
        if m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_STATE] == AT_BARRIER:
            mask = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_MASK]
            if _barrier_number(m, m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_PC], warp, mask) == number:
                lanes |= mask
    return lanes


@njit
def _release_barrier(m: Machine, number: int) -> bool:
    """Complete a block barrier if enough threads wait at it."""
    arrived, complete, warps, expected = m.barriers[2 * number + 0], True, m.barriers[2 * number + 1], np.int64(0)
    waits = False
    for warp in range(m.launch[LAUNCH_WARPS]):
        lanes, live = _waiting_lanes(m, warp, number), m.warps[warp * NUM_WARP + WARP_LIVE]
        complete = complete and lanes == live
        if lanes:
            waits = True
            warps |= np.int64(1) << warp
            arrived += 32 if lanes == live else popcount(lanes)
            expected = max(expected, _expected_threads(m, warp, number))
    if not waits or (arrived < expected if expected else not complete):
        return False
    _combine_predicates(m, number)
    _order_warps(m, warps, complete)
    for warp in range(m.launch[LAUNCH_WARPS]):
        _resume_barrier(m, warp, number)
    m.barriers[2 * number] = m.barriers[2 * number + 1] = 0
    m.counters[COUNT_BARRIERS] += 1
    return True


@njit
def _expected_threads(m: Machine, warp: int, number: int) -> int:
    for index in range(m.warps[warp * NUM_WARP + WARP_FRONTS]):
        if m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_STATE] == AT_BARRIER:
            pc, mask = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_PC], m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_MASK]
            if _barrier_number(m, pc, warp, mask) == number:
                row = (warp * m.launch[LAUNCH_REGISTER_BYTES] + m.code[pc * NUM_COLUMNS + COLUMN_S1]) >> 2
                return np.int64(m.words[row + lowest_bit(mask)])
    return np.int64(0)


@njit
def _order_warps(m: Machine, warps: int, complete: bool) -> None:
    """Everything the warps of a barrier did before it is ordered before what they do after it."""
    now, count = m.counters[COUNT_STEPS], m.launch[LAUNCH_WARPS]
    if complete:
        m.counters[COUNT_FULL_BARRIER] = now
        return
    for other in range(count):
        latest = now if warps >> other & 1 else np.int64(0)
        for warp in range(count):
            if warps >> warp & 1:
                latest = max(latest, m.seen[warp * m.launch[LAUNCH_WARPS] + other])
        for warp in range(count):
            if warps >> warp & 1:
                m.seen[warp * m.launch[LAUNCH_WARPS] + other] = latest


@njit
def _combine_predicates(m: Machine, number: int) -> None:
    """Results of bar.red: count, and, or over all threads at the barrier."""
    ones, threads = np.int64(0), np.int64(0)
    for warp in range(m.launch[LAUNCH_WARPS]):
        for index in range(m.warps[warp * NUM_WARP + WARP_FRONTS]):
            if _waits_at(m, warp, index, number):
                pc, mask = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_PC], m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_MASK]
                if m.code[pc * NUM_COLUMNS + COLUMN_CODE] >= BARRIER_POPC:
                    row = (warp * m.launch[LAUNCH_REGISTER_BYTES] + m.code[pc * NUM_COLUMNS + COLUMN_S2]) >> 2
                    ones += popcount(np.int64(m.words[row]) & mask)
                    threads += popcount(mask)
    for warp in range(m.launch[LAUNCH_WARPS]):
        for index in range(m.warps[warp * NUM_WARP + WARP_FRONTS]):
            if _waits_at(m, warp, index, number):
                pc, mask = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_PC], m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_MASK]
                mode = m.code[pc * NUM_COLUMNS + COLUMN_CODE]
                row = warp * m.launch[LAUNCH_REGISTER_BYTES] + m.code[pc * NUM_COLUMNS + COLUMN_D0]
                if mode == BARRIER_POPC:
                    _fill(m, pc, warp, mask, ones)
                elif mode == BARRIER_AND:
                    set_predicate(m, row, mask, ALL_LANES if ones == threads else 0)
                elif mode == BARRIER_OR:
                    set_predicate(m, row, mask, ALL_LANES if ones else 0)


@njit
def _waits_at(m: Machine, warp: int, index: int, number: int) -> bool:
    if m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_STATE] != AT_BARRIER:
        return False
    pc, mask = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_PC], m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_MASK]
    return _barrier_number(m, pc, warp, mask) == number


@njit
def _resume_barrier(m: Machine, warp: int, number: int) -> None:
    first = np.int64(-1)
    index = 0
    while index < m.warps[warp * NUM_WARP + WARP_FRONTS]:
        if _waits_at(m, warp, index, number):
            pc, mask = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_PC], m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_MASK]
            if m.code[pc * NUM_COLUMNS + COLUMN_SIGNED] and first >= 0 and first != pc:
                _record_divergent_barrier(m, pc, warp, mask)
                return
            first = pc
            join = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_JOIN]
            _remove_front(m, warp, index)
            _arrive(m, warp, pc + 1, mask, join)
            index = -1
        index += 1


@njit
def _record_divergent_barrier(m: Machine, pc: int, warp: int, mask: int) -> None:
    record(m, FINDING_DEADLOCK, pc, warp * 32 + lowest_bit(mask), 0, 0, 0)
    m.found[FOUND_DETAIL] = DEADLOCK_DIVERGENT_BARRIER


@njit
def _record_deadlock(m: Machine) -> None:
    """Name a thread that waits for others that never come: at a collective first, then at a barrier."""
    for state in (AT_COLLECTIVE, AT_BARRIER):
        for warp in range(m.launch[LAUNCH_WARPS]):
            for index in range(m.warps[warp * NUM_WARP + WARP_FRONTS]):
                if m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_STATE] == state:
                    pc, mask = m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_PC], m.fronts[(warp * MAX_FRONTS + index) * NUM_FRONT + FRONT_MASK]
                    record(m, FINDING_DEADLOCK, pc, warp * 32 + lowest_bit(mask), mask, 0, 0)
                    m.found[FOUND_DETAIL] = DEADLOCK_COLLECTIVE if state == AT_COLLECTIVE else DEADLOCK_BARRIER
                    return
    record(m, FINDING_DEADLOCK, 0, 0, 0, 0, 0)
    m.found[FOUND_DETAIL] = DEADLOCK_COLLECTIVE


# -- entry --------------------------------------------------------------------------------------------------------------
def _entry_point(fingerprint: str) -> Callable[[Memory, int, int], None]:
    """Compile the machine, or load it from Numba's cache on disk.

    Numba checks only the file of the function itself for changes; the fingerprint of all sources, as a closure variable,
    is part of the cache key. Only this function is cached: it contains the code of all others.
    """

    def run_blocks(memory: Memory, first: int, end: int) -> None:
        """Run the blocks first, first + stride, ... below end, until a finding."""
        m = machine_of(memory)
        if fingerprint:
            for block in range(first, end, m.launch[LAUNCH_STRIDE]):
                _start_block(m, block)
                _run_block(m)
                if m.found[FOUND_KIND]:
                    return
                _finish_block(m)

    try:
        compiled = njit(cache=True, nogil=True)(run_blocks)
    except RuntimeError:  # no writable cache directory anywhere: compile in each process
        compiled = njit(nogil=True)(run_blocks)
    return cast(Callable[[Memory, int, int], None], compiled)


def _source_fingerprint() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


run_blocks = _entry_point(_source_fingerprint())
