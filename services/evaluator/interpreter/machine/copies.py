"""Asynchronous copies into shared memory (cp.async): pending from where they are met until their thread waits for them.

What a thread copies is written, and noted in the shadow memory as its write, when it waits (PTX ISA, "Asynchronous copy
operations"): whoever reads before finds what was there before, unwritten memory or a race. A copy that nobody waits for
never arrives.

What this does not find: a reader that was woken by a phase barrier before the copies that should have arrived at it;
those of a thread count as done where it arrives (cp.async.mbarrier.arrive).
"""

from __future__ import annotations

from services.evaluator.interpreter.layout import (
    ACCESS_READ,
    ACCESS_WRITE,
    COLUMN_CODE,
    COLUMN_D0,
    COLUMN_D1,
    COLUMN_D2,
    COLUMN_S1,
    COLUMN_SIZE,
    COUNT_LOAD_REQUESTS,
    COUNT_LOAD_SECTORS,
    COUNT_UNIQUE_READ,
    FOUND_KIND,
    SHARED_WINDOW,
)
from services.evaluator.interpreter.machine.intrinsics import Pointer, at, machine_code
from services.evaluator.interpreter.machine.memory import count_sectors, lane_address, translate
from services.evaluator.interpreter.machine.shadow import note_read, note_write
from services.evaluator.interpreter.machine.state import (
    COPY_ADDRESS,
    COPY_GROUP,
    COPY_INSTRUCTION,
    COPY_LANE,
    COPY_SOURCE,
    COPY_TARGET,
    COPY_WANTED,
    LAUNCH_CELLS,
    LAUNCH_CHECK,
    MAX_PENDING_COPIES,
    NUM_COPY,
    WARP_COPIES,
    Machine,
    as_int64,
    instruction_of,
    registers_of,
    warp_of,
)


@machine_code
def begin_copies(m: Machine, pc: int, warp: int, mask: int, now: int) -> None:
    """Execute cp.async: addresses are checked and counted now, the bytes move when they are waited for."""
    row = instruction_of(m, pc)
    size, base = row[COLUMN_SIZE], registers_of(m, warp)
    read = 0
    for lane in range(32):
        if mask >> lane & 1:
            wanted = min(size, as_int64(m.words[((base + row[COLUMN_S1]) >> 2) + lane]))
            if wanted > 0:
                read |= 1 << lane
            _begin(m, pc, warp, lane, wanted, now)
            if m.found[FOUND_KIND]:
                return
    if read:
        m.counters[COUNT_LOAD_REQUESTS] += 1
        sectors = count_sectors(m, pc, read, now, m.read_stamps, COUNT_UNIQUE_READ, True)
        m.counters[COUNT_LOAD_SECTORS] += sectors


@machine_code
def commit_copies(m: Machine, warp: int, mask: int) -> None:
    """Execute cp.async.commit_group: what the lanes have begun since the last is a group."""
    for lane in range(32):
        m.copy_groups[warp * 32 + lane] += mask >> lane & 1


@machine_code
def wait_for_copies(m: Machine, pc: int, warp: int, mask: int, now: int) -> None:
    """Execute cp.async.wait_group (all but so many of the latest groups arrive) or wait_all (code -1)."""
    excepted = instruction_of(m, pc)[COLUMN_CODE]
    left = 0
    for index in range(warp_of(m, warp)[WARP_COPIES]):
        copy = _copy_of(m, warp, index)
        lane = copy[COPY_LANE]
        arrives = excepted < 0 or copy[COPY_GROUP] < m.copy_groups[warp * 32 + lane] - excepted
        if mask >> lane & 1 and arrives:
            _finish(m, warp, copy, now)
            if m.found[FOUND_KIND]:
                return
        else:
            _move(copy, _copy_of(m, warp, left))
            left += 1
    warp_of(m, warp)[WARP_COPIES] = left


@machine_code
def _copy_of(m: Machine, warp: int, index: int) -> Pointer:
    """The COPY_* numbers of a pending copy, in the order of their begin."""
    return at(m.copies, (warp * MAX_PENDING_COPIES + index) * NUM_COPY)


@machine_code
def _move(source: Pointer, target: Pointer) -> None:
    for number in range(NUM_COPY):
        target[number] = source[number]


@machine_code
def _begin(m: Machine, pc: int, warp: int, lane: int, wanted: int, now: int) -> None:
    """Leaves the arena offset of the source in the scratch numbers."""
    row = instruction_of(m, pc)
    size, thread, target_row = row[COLUMN_SIZE], warp * 32 + lane, registers_of(m, warp) + row[COLUMN_D0]
    source = 0
    if wanted > 0:
        from_address = lane_address(m, pc, warp, lane)
        source = translate(m, pc, thread, from_address, size, ACCESS_READ)
        if m.launch[LAUNCH_CHECK] and 0 <= source < m.launch[LAUNCH_CELLS] << 2:
            note_read(m, pc, warp, lane, source, from_address, wanted, 0, 0, now)
    address = SHARED_WINDOW
    if row[COLUMN_D1]:
        address += as_int64(m.longs[(target_row >> 3) + lane]) + row[COLUMN_D2]
    else:
        address += (as_int64(m.words[(target_row >> 2) + lane]) + row[COLUMN_D2]) & 0xFFFFFFFF
    target = translate(m, pc, thread, address, size, ACCESS_WRITE)
    if source < 0 or target < 0:
        return
    m.scratch[lane] = source
    if warp_of(m, warp)[WARP_COPIES] == MAX_PENDING_COPIES:
        _finish_oldest(m, warp, now)
    copy = _copy_of(m, warp, warp_of(m, warp)[WARP_COPIES])
    copy[COPY_INSTRUCTION], copy[COPY_LANE], copy[COPY_GROUP] = pc, lane, m.copy_groups[thread]
    copy[COPY_SOURCE], copy[COPY_TARGET], copy[COPY_ADDRESS], copy[COPY_WANTED] = source, target, address, wanted
    warp_of(m, warp)[WARP_COPIES] += 1


@machine_code
def _finish_oldest(m: Machine, warp: int, now: int) -> None:
    """Copies may arrive early: the oldest does where no more can be pending."""
    _finish(m, warp, _copy_of(m, warp, 0), now)
    left = warp_of(m, warp)[WARP_COPIES] - 1
    for index in range(left):
        _move(_copy_of(m, warp, index + 1), _copy_of(m, warp, index))
    warp_of(m, warp)[WARP_COPIES] = left


@machine_code
def _finish(m: Machine, warp: int, copy: Pointer, now: int) -> None:
    """Move the bytes that were wanted and fill up with zeros."""
    pc, lane, target = copy[COPY_INSTRUCTION], copy[COPY_LANE], copy[COPY_TARGET]
    size = instruction_of(m, pc)[COLUMN_SIZE]
    if m.launch[LAUNCH_CHECK] and target < m.launch[LAUNCH_CELLS] << 2:
        note_write(m, pc, warp, lane, target, copy[COPY_ADDRESS], size, ACCESS_WRITE, 0, now)
    for byte in range(size):
        m.bytes1[target + byte] = m.bytes1[copy[COPY_SOURCE] + byte] if byte < copy[COPY_WANTED] else 0
