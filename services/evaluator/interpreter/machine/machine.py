"""The machine: warps of 32 lanes run in lockstep, diverge, meet again, and wait at collectives and barriers.

Lanes that took different paths are separate **fronts** of a warp. A divergent branch opens a **join** at the immediate
post-dominator; a front that reaches it waits until the lanes that are expected there have arrived or left the kernel. A
front that must wait for other lanes (collective, barrier) steps aside for the others, as on devices with independent
thread scheduling. Warps and fronts take turns after a slice of instructions, so that spinning lanes do not starve those
they wait for. Blocks run one after another: one that waits for a later one goes round in circles (`standstill`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
from numba import njit

from services.evaluator.interpreter import layout
from services.evaluator.interpreter.layout import (
    BARRIER_ARRIVE,
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
    COLUMN_TARGET,
    COLUMN_WAITS,
    COUNT_BLOCK,
    COUNT_BLOCK_START,
    COUNT_BLOCKS,
    COUNT_BULK,
    COUNT_CHANGES,
    COUNT_DIVERGENT_BRANCHES,
    COUNT_FENCE_BEFORE,
    COUNT_FENCE_TIME,
    COUNT_LONGEST_INSTRUCTIONS,
    COUNT_LONGEST_WAITS,
    COUNT_STEPS,
    DEADLOCK_BARRIER,
    DEADLOCK_COLLECTIVE,
    FINDING_DEADLOCK,
    FINDING_STEP_LIMIT,
    FINDING_TRAP,
    FOUND_DETAIL,
    FOUND_KIND,
    KIND_ACTIVE_MASK,
    KIND_ATOMIC,
    KIND_BARRIER,
    KIND_BRANCH,
    KIND_BULK_COPY,
    KIND_CLOCK,
    KIND_COLLECTIVE,
    KIND_COMMIT_COPIES,
    KIND_COPY,
    KIND_FENCE,
    KIND_LOAD,
    KIND_NOTHING,
    KIND_OPERATION,
    KIND_PHASE_BARRIER,
    KIND_RETURN,
    KIND_STORE,
    KIND_TRAP,
    KIND_WAIT_FOR_BULK,
    KIND_WAIT_FOR_COPIES,
    KIND_WAIT_FOR_GRID,
    NUM_PROFILE,
    PROFILE_INSTRUCTIONS,
    PROFILE_LANES,
    SPECIAL_OFFSET,
)
from services.evaluator.interpreter.machine.atomics import atomic
from services.evaluator.interpreter.machine.barriers import barrier_number, release_barrier, wait_at_barrier
from services.evaluator.interpreter.machine.collectives import fill
from services.evaluator.interpreter.machine.copies import begin_copies, commit_copies, wait_for_copies
from services.evaluator.interpreter.machine.fronts import (
    arrive,
    leave,
    next_ready,
    open_join,
    push_behind,
    push_front,
    remove_front,
)
from services.evaluator.interpreter.machine.intrinsics import (
    Pointer,
    address_of,
    lowest_bit,
    machine_code,
    part_of_its_caller,
    popcount,
)
from services.evaluator.interpreter.machine.meeting import meet, release_collectives
from services.evaluator.interpreter.machine.memory import load, store
from services.evaluator.interpreter.machine.operations import execute_operation
from services.evaluator.interpreter.machine.phases import begin_bulk, phase_barrier, wait_for_bulk
from services.evaluator.interpreter.machine.standstill import begin_looking, look_for_standstill
from services.evaluator.interpreter.machine.state import (
    AT_BARRIER,
    AT_COLLECTIVE,
    FRONT_JOIN,
    FRONT_MASK,
    FRONT_PC,
    FRONT_STATE,
    JOIN_EXPECTED,
    JOIN_PC,
    LAUNCH_FIRST,
    LAUNCH_GRID_X,
    LAUNCH_GRID_Y,
    LAUNCH_GRID_Z,
    LAUNCH_MAX_STEPS,
    LAUNCH_REGISTER_BYTES,
    LAUNCH_SEED,
    LAUNCH_STEP,
    LAUNCH_STRIDE,
    LAUNCH_THREADS,
    LAUNCH_WARPS,
    MAX_JOINS,
    NUM_BARRIERS,
    READY,
    WARP_AFTER_GRID,
    WARP_COPIES,
    WARP_FRONTS,
    WARP_INSTRUCTIONS,
    WARP_LIVE,
    WARP_WAITS,
    Machine,
    Memory,
    as_int64,
    front_of,
    instruction_of,
    join_of,
    machine_of,
    record,
    registers_of,
    warp_of,
)

SLICE_STEPS = 4096
SHUFFLED_SLICE_STEPS = 256
"""Most of a warp's turn where warps run in random order."""


@machine_code
def _start_block(m: Machine, block: int) -> None:
    launch, counters = m.launch, m.counters
    counters[COUNT_BLOCK] = block
    counters[COUNT_BLOCK_START] = counters[COUNT_STEPS] + 1
    counters[COUNT_FENCE_BEFORE] = counters[COUNT_FENCE_TIME]
    counters[COUNT_BLOCKS] += 1
    counters[COUNT_BULK] = 0
    begin_looking(m)
    position_x = block % launch[LAUNCH_GRID_X]
    position_y = block // launch[LAUNCH_GRID_X] % launch[LAUNCH_GRID_Y]
    position_z = block // (launch[LAUNCH_GRID_X] * launch[LAUNCH_GRID_Y])
    threads = launch[LAUNCH_THREADS]
    for index in range(2 * NUM_BARRIERS):
        m.barriers[index] = 0
    for index in range(launch[LAUNCH_WARPS] * launch[LAUNCH_WARPS]):
        m.seen[index] = 0
    for thread in range(launch[LAUNCH_WARPS] * 32):
        m.copy_groups[thread] = 0
    for warp in range(launch[LAUNCH_WARPS]):
        row = (warp * launch[LAUNCH_REGISTER_BYTES] + SPECIAL_OFFSET + 3 * 128) >> 2
        for lane in range(32):
            m.words[row + lane] = np.uint32(position_x)
            m.words[row + 32 + lane] = np.uint32(position_y)
            m.words[row + 64 + lane] = np.uint32(position_z)
        lanes = min(32, threads - warp * 32)
        warp_of(m, warp)[WARP_LIVE] = (1 << lanes) - 1
        warp_of(m, warp)[WARP_FRONTS] = 0
        warp_of(m, warp)[WARP_INSTRUCTIONS] = 0
        warp_of(m, warp)[WARP_WAITS] = 0
        warp_of(m, warp)[WARP_AFTER_GRID] = 0
        warp_of(m, warp)[WARP_COPIES] = 0
        for index in range(MAX_JOINS):
            join_of(m, warp, index)[JOIN_EXPECTED] = 0
        push_front(m, warp, 0, warp_of(m, warp)[WARP_LIVE], -1, READY)


@machine_code
def _finish_block(m: Machine) -> None:
    counters = m.counters
    for warp in range(m.launch[LAUNCH_WARPS]):
        if warp_of(m, warp)[WARP_INSTRUCTIONS] > counters[COUNT_LONGEST_INSTRUCTIONS]:
            counters[COUNT_LONGEST_INSTRUCTIONS] = warp_of(m, warp)[WARP_INSTRUCTIONS]
        if warp_of(m, warp)[WARP_WAITS] > counters[COUNT_LONGEST_WAITS]:
            counters[COUNT_LONGEST_WAITS] = warp_of(m, warp)[WARP_WAITS]


@machine_code
def _random_below(m: Machine, bound: int) -> int:
    """A number below the bound; the launch's seed goes on (Knuth's 64-bit congruential generator)."""
    state = m.launch[LAUNCH_SEED] * 6364136223846793005 + 1442695040888963407
    m.launch[LAUNCH_SEED] = state
    return ((state >> 33) & 0x7FFFFFFF) % bound


@machine_code
def _random_step(m: Machine, bound: int) -> int:
    """A number that has no divisor in common with the bound: its multiples reach every number below."""
    step = 1 + _random_below(m, bound)
    while True:
        one, other = step, bound
        while other:
            one, other = other, one % other
        if one == 1:
            return step
        step += 1


@part_of_its_caller
def _run_block(m: Machine) -> None:
    warps = m.launch[LAUNCH_WARPS]
    first, step = 0, 1
    while True:
        ran = False
        if m.launch[LAUNCH_SEED]:
            first, step = _random_below(m, warps), _random_step(m, warps)
        for place in range(warps):
            warp = (first + place * step) % warps
            if next_ready(m, warp) >= 0:
                ran = True
                _run_warp(m, warp)
                if m.found[FOUND_KIND]:
                    return
        if not ran and not _release_waiting(m):
            return
        look_for_standstill(m)
        if m.found[FOUND_KIND]:
            return


@machine_code
def _release_waiting(m: Machine) -> bool:
    """When no lane can run: complete a barrier. False if all lanes have left; a finding if nothing can complete."""
    waiting = False
    for warp in range(m.launch[LAUNCH_WARPS]):
        waiting = waiting or warp_of(m, warp)[WARP_FRONTS] > 0 or warp_of(m, warp)[WARP_LIVE] != 0
    if not waiting:
        return False
    released = False
    for number in range(NUM_BARRIERS):
        if release_barrier(m, number):
            released = True
    if not released:
        _record_deadlock(m)
    return True


@part_of_its_caller
def _run_warp(m: Machine, warp: int) -> None:
    """Run fronts of a warp until all wait or have left, or the slice is used up."""
    budget = 1 + _random_below(m, SHUFFLED_SLICE_STEPS) if m.launch[LAUNCH_SEED] else SLICE_STEPS
    while True:
        index = next_ready(m, warp)
        if index < 0:
            return
        pc = front_of(m, warp, index)[FRONT_PC]
        mask = front_of(m, warp, index)[FRONT_MASK]
        join = front_of(m, warp, index)[FRONT_JOIN]
        remove_front(m, warp, index)
        budget = _run_front(m, warp, pc, mask, join, budget)
        if budget <= 0 or m.found[FOUND_KIND]:
            return


@part_of_its_caller
def _run_front(m: Machine, warp: int, pc: int, mask: int, join: int, budget: int) -> int:
    """Run a group of lanes until it waits, splits, meets or leaves; returns what is left of the budget of steps."""
    stop = join_of(m, warp, join)[JOIN_PC] if join >= 0 else -1
    while pc >= 0:
        if pc == stop:
            arrive(m, warp, pc, mask, join)
            return budget
        if budget <= 0:
            push_behind(m, warp, pc, mask, join)
            return budget
        budget -= 1
        row = instruction_of(m, pc)
        kind, active = row[COLUMN_KIND], _active_lanes(m, row, warp, mask)
        now = _count_step(m, row, pc, warp, mask, active)
        if m.found[FOUND_KIND]:
            return budget
        if kind == KIND_OPERATION:
            if active:
                _operate(m, row, warp, active)
            pc += 1
        elif kind == KIND_BRANCH:
            pc = _branch(m, row, pc, warp, active, mask, join)
        elif active == 0:
            pc += 1
        elif kind == KIND_RETURN:
            leave(m, warp, active, join)
            release_collectives(m, warp)
            mask &= ~active
            pc = pc + 1 if mask else -1
        elif kind == KIND_COLLECTIVE:
            pc = pc + 1 if meet(m, pc, warp, active, mask, join) else -1
        elif kind == KIND_BARRIER and row[COLUMN_CODE] != BARRIER_ARRIVE:
            wait_at_barrier(m, pc, warp, active, mask, join)
            pc = -1
        else:
            _execute(m, pc, kind, warp, active, now)
            pc += 1
        if m.found[FOUND_KIND]:
            return budget
    return budget


@machine_code
def _active_lanes(m: Machine, row: Pointer, warp: int, mask: int) -> int:
    """The lanes whose guard lets them execute the instruction."""
    if row[COLUMN_GUARD] < 0:
        return mask
    guard = as_int64(m.words[(registers_of(m, warp) + row[COLUMN_GUARD]) >> 2])
    return mask & ~guard if row[COLUMN_GUARD_NEGATED] else mask & guard


@machine_code
def _count_step(m: Machine, row: Pointer, pc: int, warp: int, mask: int, active: int) -> int:
    """Count an instruction; returns the time, which grows with each instruction of the launch."""
    now = m.counters[COUNT_STEPS] + 1
    m.counters[COUNT_STEPS] = now
    if now > m.launch[LAUNCH_MAX_STEPS]:
        record(m, FINDING_STEP_LIMIT, pc, warp * 32 + lowest_bit(mask), 0, 0, 0)
    statistics = warp_of(m, warp)
    statistics[WARP_INSTRUCTIONS] += 1
    statistics[WARP_WAITS] += row[COLUMN_WAITS]
    m.profile[pc * NUM_PROFILE + PROFILE_INSTRUCTIONS] += 1
    m.profile[pc * NUM_PROFILE + PROFILE_LANES] += popcount(active)
    return now


@machine_code
def _operate(m: Machine, row: Pointer, warp: int, active: int) -> None:
    rows = address_of(m.words) + registers_of(m, warp)
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


@machine_code
def _branch(m: Machine, row: Pointer, pc: int, warp: int, active: int, mask: int, join: int) -> int:
    """The next instruction, or -1 after a split into two fronts."""
    if active == mask:
        return row[COLUMN_TARGET]
    if active == 0:
        return pc + 1
    m.counters[COUNT_DIVERGENT_BRANCHES] += 1
    inner = open_join(m, warp, row[COLUMN_JOIN], mask, join)
    arrive(m, warp, row[COLUMN_TARGET], active, inner)
    arrive(m, warp, pc + 1, mask & ~active, inner)
    return -1


@machine_code
def _execute(m: Machine, pc: int, kind: int, warp: int, active: int, now: int) -> None:
    """Execute an instruction that does not change the flow of control."""
    if kind == KIND_LOAD:
        load(m, pc, warp, active, now)
        return
    if kind not in (KIND_NOTHING, KIND_FENCE, KIND_CLOCK, KIND_ACTIVE_MASK):
        m.counters[COUNT_CHANGES] += 1
    if kind == KIND_STORE:
        store(m, pc, warp, active, now)
    elif kind == KIND_ATOMIC:
        atomic(m, pc, warp, active, now)
    elif kind == KIND_COPY:
        begin_copies(m, pc, warp, active, now)
    elif kind == KIND_COMMIT_COPIES:
        commit_copies(m, warp, active)
    elif kind == KIND_WAIT_FOR_COPIES:
        wait_for_copies(m, pc, warp, active, now)
    elif kind == KIND_BULK_COPY:
        begin_bulk(m, pc, warp, active, now)
    elif kind == KIND_WAIT_FOR_BULK:
        wait_for_bulk(m, pc, warp, active, now)
    elif kind == KIND_PHASE_BARRIER:
        phase_barrier(m, pc, warp, active, now)
    elif kind == KIND_FENCE:
        m.counters[COUNT_FENCE_TIME] = now
    elif kind == KIND_WAIT_FOR_GRID:
        warp_of(m, warp)[WARP_AFTER_GRID] |= active
    elif kind == KIND_BARRIER:
        number = barrier_number(m, pc, warp, active)
        m.barriers[2 * number + 0] += 32
        m.barriers[2 * number + 1] |= 1 << warp
    elif kind == KIND_TRAP:
        record(m, FINDING_TRAP, pc, warp * 32 + lowest_bit(active), 0, 0, 0)
    elif kind in (KIND_CLOCK, KIND_ACTIVE_MASK):
        fill(m, pc, warp, active, now if kind == KIND_CLOCK else active)


@machine_code
def _record_deadlock(m: Machine) -> None:
    """Name a thread that waits for others that never come: at a collective first, then at a barrier."""
    for state in (AT_COLLECTIVE, AT_BARRIER):
        for warp in range(m.launch[LAUNCH_WARPS]):
            for index in range(warp_of(m, warp)[WARP_FRONTS]):
                if front_of(m, warp, index)[FRONT_STATE] == state:
                    pc, mask = front_of(m, warp, index)[FRONT_PC], front_of(m, warp, index)[FRONT_MASK]
                    record(m, FINDING_DEADLOCK, pc, warp * 32 + lowest_bit(mask), mask, 0, 0)
                    m.found[FOUND_DETAIL] = DEADLOCK_COLLECTIVE if state == AT_COLLECTIVE else DEADLOCK_BARRIER
                    return
    record(m, FINDING_DEADLOCK, 0, 0, 0, 0, 0)
    m.found[FOUND_DETAIL] = DEADLOCK_COLLECTIVE


# -- entry ------------------------------------------------------------------------------------------------------------
def _entry_point(fingerprint: str) -> Callable[[Memory, int, int], None]:
    """Compile the machine, or load it from Numba's cache on disk.

    Numba checks only the file of the function itself for changes; the fingerprint of all sources, a closure variable,
    is part of the cache key. Only this function is cached: it contains the code of all others.
    """

    def run_blocks(memory: Memory, first: int, end: int) -> None:
        """Run the blocks at the places first, first + stride, ... before end, until a finding. The stride may be
        negative; which block is at a place, LAUNCH_FIRST and LAUNCH_STEP say."""
        m = machine_of(memory)
        blocks = m.launch[LAUNCH_GRID_X] * m.launch[LAUNCH_GRID_Y] * m.launch[LAUNCH_GRID_Z]
        if fingerprint:
            for place in range(first, end, m.launch[LAUNCH_STRIDE]):
                _start_block(m, (m.launch[LAUNCH_FIRST] + place * m.launch[LAUNCH_STEP]) % blocks)
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
    for path in [Path(layout.__file__), *sorted(Path(__file__).parent.glob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


run_blocks = _entry_point(_source_fingerprint())
