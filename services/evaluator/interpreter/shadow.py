"""Shadow memory: who wrote and read each word last, to find races and uninitialised reads.

Order is tracked per warp: a barrier orders everything its warps did before it. Accesses of one warp are taken as ordered
by the program (lanes run in lockstep), except that two lanes of one instruction must not store different values in one
place. Between blocks only atomics and other strong accesses may meet, or accesses with a fence on both sides; whether
the flag that such blocks exchange is correct is not checked. Races that the sequential order of blocks hides from a
single run (a read that precedes the write in every order tried) are found only as read-write pairs.
"""

from __future__ import annotations

from numba import njit

from services.evaluator.interpreter.layout import (
    ACCESS_READ,
    ACCESS_WRITE,
    COUNT_BLOCK,
    COUNT_BLOCK_START,
    COUNT_FENCE_BEFORE,
    COUNT_FENCE_TIME,
    COUNT_FULL_BARRIER,
    FINDING_RACE,
    FINDING_UNINITIALISED_READ,
    FINDING_UNINITIALISED_SHARED,
    FOUND_OTHER_BLOCK,
    FOUND_OTHER_INSTRUCTION,
    FOUND_OTHER_THREAD,
)
from services.evaluator.interpreter.state import (
    CELL_INITIALISED_BYTES,
    CELL_READER,
    CELL_READER_BLOCK,
    CELL_READER_INSTRUCTION,
    CELL_STRONG,
    CELL_WRITER,
    CELL_WRITER_BLOCK,
    CELL_WRITER_INSTRUCTION,
    CELL_WRITTEN_BYTES,
    LAUNCH_SHARED_BYTES,
    LAUNCH_WARPS,
    NUM_CELL_MARKS,
    Machine,
    at,
    record,
)

MANY = -1
"""Stands for several warps or blocks among the readers of a cell."""


@njit
def _ordered(m: Machine, warp: int, time: int, thread: int) -> bool:
    """Whether an access of this or an earlier block is ordered before what the warp does now."""
    counters = m.counters
    if time < counters[COUNT_BLOCK_START]:
        return counters[COUNT_FENCE_BEFORE] > time and counters[COUNT_FENCE_TIME] >= counters[COUNT_BLOCK_START]
    if time <= counters[COUNT_FULL_BARRIER]:
        return True
    if thread == MANY:
        for other in range(m.launch[LAUNCH_WARPS]):
            if other != warp and m.seen[warp * m.launch[LAUNCH_WARPS] + other] < time:
                return False
        return True
    other = thread >> 5
    return other == warp or m.seen[warp * m.launch[LAUNCH_WARPS] + other] >= time


@njit
def _record_race(
    m: Machine, pc: int, thread: int, address: int, size: int, access: int, other: int, block: int, instruction: int
) -> None:
    record(m, FINDING_RACE, pc, thread, address, size, access)
    m.found[FOUND_OTHER_THREAD] = other
    m.found[FOUND_OTHER_BLOCK] = block
    m.found[FOUND_OTHER_INSTRUCTION] = instruction


@njit
def _touched_bytes(offset: int, size: int) -> int:
    return 15 if size >= 4 else ((1 << size) - 1) << (offset & 3)


@njit
def note_read(
    m: Machine, pc: int, warp: int, lane: int, offset: int, address: int, size: int, strong: int, now: int
) -> None:
    """Check and note a read of `size` bytes at an arena offset inside the shadowed part."""
    thread = warp * 32 + lane
    touched = _touched_bytes(offset, size)
    shared = offset < m.launch[LAUNCH_SHARED_BYTES]
    block_start = m.counters[COUNT_BLOCK_START]
    for part in range(0, size, 4):
        cell = (offset + part) >> 2
        marks = at(m.cell_marks, cell * NUM_CELL_MARKS)
        written = m.cell_times[2 * cell]
        valid = marks[CELL_INITIALISED_BYTES]
        if shared and written < block_start:
            valid = 0
        if touched & ~valid:
            kind = FINDING_UNINITIALISED_SHARED if shared else FINDING_UNINITIALISED_READ
            record(m, kind, pc, thread, address + part, size, ACCESS_READ)
            return
        if strong:
            continue
        if written > 0 and (marks[CELL_WRITTEN_BYTES] & touched) and not (shared and written < block_start):
            writer = marks[CELL_WRITER]
            if not _ordered(m, warp, written, writer):
                block, instruction = marks[CELL_WRITER_BLOCK], marks[CELL_WRITER_INSTRUCTION]
                _record_race(m, pc, thread, address + part, size, ACCESS_READ, writer, block, instruction)
                return
        _note_reader(m, pc, warp, thread, cell, now)


@njit
def _note_reader(m: Machine, pc: int, warp: int, thread: int, cell: int, now: int) -> None:
    marks = at(m.cell_marks, cell * NUM_CELL_MARKS)
    last = m.cell_times[2 * cell + 1]
    block = m.counters[COUNT_BLOCK]
    if last > 0 and last >= m.counters[COUNT_BLOCK_START]:
        same_warp = marks[CELL_READER] != MANY and marks[CELL_READER] >> 5 == warp
        if last > m.counters[COUNT_FULL_BARRIER] and not same_warp:
            thread = MANY
    marks[CELL_READER_BLOCK] = block if last == 0 or marks[CELL_READER_BLOCK] == block else MANY
    marks[CELL_READER] = thread
    marks[CELL_READER_INSTRUCTION] = pc
    m.cell_times[2 * cell + 1] = now


@njit
def note_write(
    m: Machine,
    pc: int,
    warp: int,
    lane: int,
    offset: int,
    address: int,
    size: int,
    access: int,
    strong: int,
    now: int,
) -> bool:
    """Check and note a write; True if another lane of this instruction wrote the same bytes before."""
    thread = warp * 32 + lane
    touched = _touched_bytes(offset, size)
    shared = offset < m.launch[LAUNCH_SHARED_BYTES]
    block_start = m.counters[COUNT_BLOCK_START]
    overlap = False
    for part in range(0, size, 4):
        cell = (offset + part) >> 2
        marks = at(m.cell_marks, cell * NUM_CELL_MARKS)
        written, read = m.cell_times[2 * cell], m.cell_times[2 * cell + 1]
        stale = shared and written < block_start
        if written == now and marks[CELL_WRITTEN_BYTES] & touched:
            overlap = True
        elif written > 0 and not stale and (marks[CELL_WRITTEN_BYTES] & touched):
            writer = marks[CELL_WRITER]
            if not (strong and marks[CELL_STRONG]) and not _ordered(m, warp, written, writer):
                block, instruction = marks[CELL_WRITER_BLOCK], marks[CELL_WRITER_INSTRUCTION]
                _record_race(m, pc, thread, address + part, size, access, writer, block, instruction)
                return False
        if read > 0 and not (shared and read < block_start):
            reader, reader_block = marks[CELL_READER], marks[CELL_READER_BLOCK]
            alone = read >= block_start and reader_block == m.counters[COUNT_BLOCK]
            other_block = read < block_start or (not alone and not shared)
            if (other_block and not _fenced(m, read)) or not (other_block or _ordered(m, warp, read, reader)):
                instruction = marks[CELL_READER_INSTRUCTION]
                _record_race(m, pc, thread, address + part, size, access, reader, reader_block, instruction)
                return False
        same_writer = written >= block_start and marks[CELL_WRITER] == thread and written != 0
        marks[CELL_WRITTEN_BYTES] = touched | (marks[CELL_WRITTEN_BYTES] if same_writer or written == now else 0)
        marks[CELL_INITIALISED_BYTES] = touched | (0 if stale else marks[CELL_INITIALISED_BYTES])
        marks[CELL_WRITER] = thread
        marks[CELL_WRITER_BLOCK] = m.counters[COUNT_BLOCK]
        marks[CELL_WRITER_INSTRUCTION] = pc
        marks[CELL_STRONG] = strong
        m.cell_times[2 * cell] = now
    return overlap


@njit
def _fenced(m: Machine, time: int) -> bool:
    counters = m.counters
    return counters[COUNT_FENCE_BEFORE] > time and counters[COUNT_FENCE_TIME] >= counters[COUNT_BLOCK_START]


@njit
def note_conflicting_lanes(m: Machine, pc: int, warp: int, lane: int, offset: int, address: int, size: int) -> None:
    """Two lanes of one store instruction wrote different values to the same place."""
    writer = m.cell_marks[(offset >> 2) * NUM_CELL_MARKS + CELL_WRITER]
    block = m.counters[COUNT_BLOCK]
    _record_race(m, pc, warp * 32 + lane, address, size, ACCESS_WRITE, writer, block, pc)
