"""Shadow memory: who wrote and read each word last, to find races and uninitialised reads.

Each 4-byte word of shared memory and of writable buffers keeps its last plain write, its last strong write (atomic,
volatile or ordered) and its last plain read. Order is tracked per warp: a barrier orders what its warps did before it.

What this does not find: races between lanes of one warp, which run in lockstep here (except two lanes of one
instruction that store different values in one place); wrong flags between blocks (accesses of different blocks are
taken as ordered when both sides executed a fence); races that an earlier access to the same word hides; updates that
get lost between a volatile or atomic load and the store after it, because blocks run one after another here; words of a
buffer that nothing has written where a vector load reaches them from a word that was (padding behind the last element).
What it takes for a race and is none: one warp reads and writes half a word, another the other half.
"""

from __future__ import annotations

from services.evaluator.interpreter.layout import (
    ACCESS_ATOMIC,
    ACCESS_READ,
    ACCESS_WRITE,
    COUNT_BLOCK,
    COUNT_BLOCK_START,
    COUNT_FENCE_BEFORE,
    COUNT_FENCE_TIME,
    COUNT_FULL_BARRIER,
    FINDING_CHANGING_CONSTANT,
    FINDING_RACE,
    FINDING_UNINITIALISED_READ,
    FINDING_UNINITIALISED_SHARED,
    FOUND_OTHER_BLOCK,
    FOUND_OTHER_INSTRUCTION,
    FOUND_OTHER_THREAD,
)
from services.evaluator.interpreter.machine.intrinsics import machine_code
from services.evaluator.interpreter.machine.state import (
    CELL_CONSTANT,
    CELL_INITIALISED_BYTES,
    CELL_STRONG_BYTES,
    CELL_WEAK_BYTES,
    LAUNCH_SHARED_BYTES,
    LAUNCH_WARPS,
    MARK_BLOCK,
    MARK_INSTRUCTION,
    MARK_THREAD,
    NUM_MARK,
    TIME_READ,
    TIME_STRONG,
    TIME_WEAK,
    Machine,
    marks_of,
    record,
    times_of,
)

MANY = -1
"""Stands for several warps or blocks among the readers of a word."""


# -- order ------------------------------------------------------------------------------------------------------------
@machine_code
def _fenced(m: Machine, time: int) -> bool:
    """Whether an access of an earlier block is ordered before this one by fences on both sides."""
    counters = m.counters
    return counters[COUNT_FENCE_BEFORE] > time and counters[COUNT_FENCE_TIME] >= counters[COUNT_BLOCK_START]


@machine_code
def _ordered(m: Machine, warp: int, time: int, thread: int) -> bool:
    """Whether an access of this block is ordered before what the warp does now."""
    if time <= m.counters[COUNT_FULL_BARRIER]:
        return True
    warps = m.launch[LAUNCH_WARPS]
    if thread == MANY:
        late = 0
        for other in range(warps):
            late += other != warp and m.seen[warp * warps + other] < time
        return late == 0
    owner = thread >> 5
    return owner == warp or m.seen[warp * warps + owner] >= time


@machine_code
def _conflicts(m: Machine, warp: int, cell: int, which: int, shared: bool) -> bool:
    """Whether the last access of a kind (TIME_*) to a word is not ordered before what the warp does now."""
    time = times_of(m, cell)[which]
    if time == 0:
        return False
    if time < m.counters[COUNT_BLOCK_START]:
        return not shared and not _fenced(m, time)
    mark = marks_of(m, cell)
    if mark[which * NUM_MARK + MARK_BLOCK] == MANY and not shared and not _fenced(m, time):
        return True
    return not _ordered(m, warp, time, mark[which * NUM_MARK + MARK_THREAD])


@machine_code
def _record_race(m: Machine, pc: int, thread: int, address: int, size: int, access: int, cell: int, which: int) -> None:
    mark = marks_of(m, cell)
    record(m, FINDING_RACE, pc, thread, address, size, access)
    m.found[FOUND_OTHER_THREAD] = mark[which * NUM_MARK + MARK_THREAD]
    m.found[FOUND_OTHER_BLOCK] = mark[which * NUM_MARK + MARK_BLOCK]
    m.found[FOUND_OTHER_INSTRUCTION] = mark[which * NUM_MARK + MARK_INSTRUCTION]


# -- accesses ---------------------------------------------------------------------------------------------------------
@machine_code
def _touched_bytes(offset: int, size: int) -> int:
    return 15 if size >= 4 else ((1 << size) - 1) << (offset & 3)


@machine_code
def _fresh(m: Machine, cell: int, shared: bool) -> bool:
    """Whether what is in the word counts: shared memory starts empty in each block."""
    times = times_of(m, cell)
    return not shared or max(times[TIME_WEAK], times[TIME_STRONG]) >= m.counters[COUNT_BLOCK_START]


@machine_code
def note_read(
    m: Machine,
    pc: int,
    warp: int,
    lane: int,
    offset: int,
    address: int,
    size: int,
    strong: int,
    constant: int,
    now: int,
) -> None:
    """Check and note a read of `size` bytes at an arena offset inside the shadowed part."""
    thread = warp * 32 + lane
    touched = _touched_bytes(offset, size)
    shared = offset < m.launch[LAUNCH_SHARED_BYTES]
    for part in range(0, size, 4):
        cell = (offset + part) >> 2
        marks = marks_of(m, cell)
        initialised = marks[CELL_INITIALISED_BYTES] if _fresh(m, cell, shared) else 0
        if touched & ~initialised and (shared or part == 0):
            kind = FINDING_UNINITIALISED_SHARED if shared else FINDING_UNINITIALISED_READ
            record(m, kind, pc, thread, address + part, size, ACCESS_READ)
            return
        if constant:
            marks[CELL_CONSTANT] = 1
            if max(times_of(m, cell)[TIME_WEAK], times_of(m, cell)[TIME_STRONG]) > 0:
                record(m, FINDING_CHANGING_CONSTANT, pc, thread, address + part, size, ACCESS_READ)
                return
        if strong:
            continue
        if marks[CELL_WEAK_BYTES] & touched and _conflicts(m, warp, cell, TIME_WEAK, shared):
            _record_race(m, pc, thread, address + part, size, ACCESS_READ, cell, TIME_WEAK)
            return
        if marks[CELL_STRONG_BYTES] & touched and _conflicts(m, warp, cell, TIME_STRONG, shared):
            _record_race(m, pc, thread, address + part, size, ACCESS_READ, cell, TIME_STRONG)
            return
        _note_reader(m, pc, warp, thread, cell, now)


@machine_code
def note_old_value(m: Machine, pc: int, warp: int, lane: int, offset: int, address: int, size: int) -> None:
    """Check that what an atomic operation finds was written; what it then leaves counts as written."""
    touched = _touched_bytes(offset, size)
    shared = offset < m.launch[LAUNCH_SHARED_BYTES]
    for part in range(0, size, 4):
        cell = (offset + part) >> 2
        initialised = marks_of(m, cell)[CELL_INITIALISED_BYTES] if _fresh(m, cell, shared) else 0
        if touched & ~initialised:
            kind = FINDING_UNINITIALISED_SHARED if shared else FINDING_UNINITIALISED_READ
            record(m, kind, pc, warp * 32 + lane, address + part, size, ACCESS_ATOMIC)
            return


@machine_code
def _note_reader(m: Machine, pc: int, warp: int, thread: int, cell: int, now: int) -> None:
    marks, times, block = marks_of(m, cell), times_of(m, cell), m.counters[COUNT_BLOCK]
    first = TIME_READ * NUM_MARK
    last = times[TIME_READ]
    if last > m.counters[COUNT_FULL_BARRIER] and last >= m.counters[COUNT_BLOCK_START]:
        before = marks[first + MARK_THREAD]
        if before == MANY or before >> 5 != warp:
            thread = MANY
    marks[first + MARK_BLOCK] = block if last == 0 or marks[first + MARK_BLOCK] == block else MANY
    marks[first + MARK_THREAD] = thread
    marks[first + MARK_INSTRUCTION] = pc
    times[TIME_READ] = now


@machine_code
def note_write(
    m: Machine, pc: int, warp: int, lane: int, offset: int, address: int, size: int, access: int, strong: int, now: int
) -> bool:
    """Check and note a write; True if another lane of this instruction wrote some of the same bytes before."""
    thread = warp * 32 + lane
    touched = _touched_bytes(offset, size)
    shared = offset < m.launch[LAUNCH_SHARED_BYTES]
    overlap = False
    for part in range(0, size, 4):
        cell = (offset + part) >> 2
        marks, times = marks_of(m, cell), times_of(m, cell)
        if marks[CELL_CONSTANT]:
            record(m, FINDING_CHANGING_CONSTANT, pc, thread, address + part, size, access)
            return False
        if times[TIME_WEAK] == now:
            overlap = overlap or marks[CELL_WEAK_BYTES] & touched != 0
        elif marks[CELL_WEAK_BYTES] & touched and _conflicts(m, warp, cell, TIME_WEAK, shared):
            _record_race(m, pc, thread, address + part, size, access, cell, TIME_WEAK)
            return False
        if not strong and marks[CELL_STRONG_BYTES] & touched and _conflicts(m, warp, cell, TIME_STRONG, shared):
            _record_race(m, pc, thread, address + part, size, access, cell, TIME_STRONG)
            return False
        if _conflicts(m, warp, cell, TIME_READ, shared):
            _record_race(m, pc, thread, address + part, size, access, cell, TIME_READ)
            return False
        _note_writer(m, pc, thread, cell, touched, strong, shared, now)
    return overlap


@machine_code
def _note_writer(
    m: Machine, pc: int, thread: int, cell: int, touched: int, strong: int, shared: bool, now: int
) -> None:
    marks, times = marks_of(m, cell), times_of(m, cell)
    marks[CELL_INITIALISED_BYTES] = touched | (marks[CELL_INITIALISED_BYTES] if _fresh(m, cell, shared) else 0)
    which = TIME_STRONG if strong else TIME_WEAK
    column = CELL_STRONG_BYTES if strong else CELL_WEAK_BYTES
    first = which * NUM_MARK
    same = marks[first + MARK_THREAD] == thread and marks[first + MARK_BLOCK] == m.counters[COUNT_BLOCK]
    marks[column] = touched | (marks[column] if same or times[which] == now else 0)
    marks[first + MARK_THREAD] = thread
    marks[first + MARK_BLOCK] = m.counters[COUNT_BLOCK]
    marks[first + MARK_INSTRUCTION] = pc
    times[which] = now


@machine_code
def note_conflicting_lanes(m: Machine, pc: int, warp: int, lane: int, offset: int, address: int, size: int) -> None:
    """Two lanes of one store instruction wrote different values to the same place."""
    _record_race(m, pc, warp * 32 + lane, address, size, ACCESS_WRITE, offset >> 2, TIME_WEAK)
