"""Phase barriers (mbarrier) and the bulk copies that arrive at them (cp.async.bulk).

The 64-bit word of a barrier: pending arrivals in bits 0 to 19, those of a phase in bits 20 to 39, bytes that are still
to come (from bulk copies, more by 2^19) in bits 40 to 59, the number of the phase in bits 60 to 63.

A bulk copy is pending from where it is met until a thread asks its barrier whether the phase is over (or until its own
thread waits for its group): only then its bytes move, noted as the copying thread's write, and only who has asked comes
after them. Whoever reads before finds what was there before, unwritten memory or a race. A copy that nobody waits for
never arrives.

What this does not find: a missing proxy fence between ordinary writes and bulk copies.
"""

from __future__ import annotations

import numpy as np

from services.evaluator.interpreter.layout import (
    ACCESS_ATOMIC,
    ACCESS_READ,
    ACCESS_WRITE,
    COLUMN_CODE,
    COLUMN_D0,
    COLUMN_D1,
    COLUMN_D2,
    COLUMN_D3,
    COLUMN_S1,
    COLUMN_S2,
    COLUMN_SIGNED,
    COLUMN_TARGET,
    COUNT_BULK,
    COUNT_LOAD_REQUESTS,
    COUNT_LOAD_SECTORS,
    COUNT_STORE_REQUESTS,
    COUNT_STORE_SECTORS,
    COUNT_UNIQUE_READ,
    COUNT_UNIQUE_WRITTEN,
    FINDING_MISALIGNED,
    FINDING_OUT_OF_BOUNDS,
    FOUND_KIND,
    PHASE_ARRIVE,
    PHASE_BYTES,
    PHASE_DROP,
    PHASE_INIT,
    PHASE_PARITY,
    SHARED_WINDOW,
)
from services.evaluator.interpreter.machine.atomics import note_atomic
from services.evaluator.interpreter.machine.intrinsics import Pointer, at, machine_code
from services.evaluator.interpreter.machine.memory import lane_address, translate, translate_lanes
from services.evaluator.interpreter.machine.shadow import note_read, note_write
from services.evaluator.interpreter.machine.state import (
    BULK_BARRIER,
    BULK_BYTES,
    BULK_FROM,
    BULK_INSTRUCTION,
    BULK_SOURCE,
    BULK_TARGET,
    BULK_THREAD,
    BULK_TO,
    LAUNCH_CELLS,
    LAUNCH_CHECK,
    LAUNCH_WARPS,
    MAX_PENDING_BULK,
    NUM_BULK,
    Machine,
    as_int64,
    instruction_of,
    record,
    registers_of,
)

COUNT_MASK = 0xFFFFF
NO_BYTES = 1 << 19
UNIT = 16
"""Bytes that bulk copies are multiples of, and lie on."""


# -- the word of a barrier --------------------------------------------------------------------------------------------
@machine_code
def _word(pending: int, expected: int, missing: int, phase: int) -> int:
    """Goes to the next phase where nothing is awaited any more."""
    if pending <= 0 and missing == NO_BYTES:
        pending, phase = expected, phase + 1
    return pending | expected << 20 | (missing & COUNT_MASK) << 40 | (phase & 15) << 60


@machine_code
def _changed(word: int, arrivals: int, drops: int, missing: int) -> int:
    """After so many arrivals, of which some come in no later phase, and so many more bytes to come."""
    expected = max(0, (word >> 20 & COUNT_MASK) - drops)
    return _word((word & COUNT_MASK) - arrivals, expected, (word >> 40 & COUNT_MASK) + missing, word >> 60 & 15)


@machine_code
def phase_barrier(m: Machine, pc: int, warp: int, mask: int, now: int) -> None:
    """Execute an mbarrier operation for the active lanes, in the order of lanes."""
    if not translate_lanes(m, pc, warp, mask, 8, ACCESS_ATOMIC):
        return
    for lane in range(32):
        if mask >> lane & 1:
            offset = m.scratch[lane]
            note_atomic(m, pc, warp, lane, offset, 8, now)
            _step(m, pc, warp, lane, offset, now)
            if m.found[FOUND_KIND]:
                return


@machine_code
def _step(m: Machine, pc: int, warp: int, lane: int, offset: int, now: int) -> None:
    row, base = instruction_of(m, pc), registers_of(m, warp)
    action = row[COLUMN_CODE]
    if action == PHASE_INIT:
        count = as_int64(m.words[((base + row[COLUMN_S1]) >> 2) + lane]) & COUNT_MASK
        m.bytes8[offset >> 3] = np.uint64(count | count << 20 | NO_BYTES << 40)
        return
    if action in (PHASE_ARRIVE, PHASE_DROP, PHASE_BYTES):
        word = as_int64(m.bytes8[offset >> 3])
        count = as_int64(m.words[((base + row[COLUMN_S1]) >> 2) + lane]) & COUNT_MASK
        bytes_to_come = as_int64(m.words[((base + row[COLUMN_S2]) >> 2) + lane]) & COUNT_MASK
        arrivals = 0 if action == PHASE_BYTES else count
        if action != PHASE_BYTES:
            m.longs[((base + row[COLUMN_D0]) >> 3) + lane] = np.uint64(word)
        m.bytes8[offset >> 3] = np.uint64(_changed(word, arrivals, 1 if action == PHASE_DROP else 0, bytes_to_come))
        return
    _finish_at(m, offset, now)
    word = as_int64(m.bytes8[offset >> 3])
    if action == PHASE_PARITY:
        done = word >> 60 & 1 != as_int64(m.words[((base + row[COLUMN_S1]) >> 2) + lane]) & 1
    else:
        done = word >> 60 & 15 != as_int64(m.longs[((base + row[COLUMN_S1]) >> 3) + lane]) >> 60 & 15
    predicate = (base + row[COLUMN_D0]) >> 2
    old, bit = as_int64(m.words[predicate]), 1 << lane
    m.words[predicate] = np.uint32(old | bit if done else old & ~bit)
    if done:
        for other in range(m.launch[LAUNCH_WARPS]):
            m.seen[warp * m.launch[LAUNCH_WARPS] + other] = now


# -- bulk copies ------------------------------------------------------------------------------------------------------
@machine_code
def begin_bulk(m: Machine, pc: int, warp: int, mask: int, now: int) -> None:
    """Execute cp.async.bulk: addresses are checked and counted now, the bytes move when they are waited for."""
    row, base = instruction_of(m, pc), registers_of(m, warp)
    for lane in range(32):
        if mask >> lane & 1:
            size = as_int64(m.words[((base + row[COLUMN_S1]) >> 2) + lane])
            if size:
                _begin(m, pc, warp, lane, size, now)
            if m.found[FOUND_KIND]:
                return


@machine_code
def wait_for_bulk(m: Machine, pc: int, warp: int, mask: int, now: int) -> None:
    """Execute cp.async.bulk.wait_group: all copies of a thread arrive but so many of the latest (each a group)."""
    excepted = instruction_of(m, pc)[COLUMN_CODE]
    for lane in range(32):
        if mask >> lane & 1:
            own = 0
            for index in range(m.counters[COUNT_BULK]):
                own += _waits_in_group(m, index, warp * 32 + lane)
            index = 0
            while index < m.counters[COUNT_BULK] and own > excepted and not m.found[FOUND_KIND]:
                if _waits_in_group(m, index, warp * 32 + lane):
                    _finish(m, index, now)
                    own -= 1
                else:
                    index += 1


@machine_code
def _waits_in_group(m: Machine, index: int, thread: int) -> bool:
    bulk = _bulk_of(m, index)
    return bulk[BULK_BARRIER] < 0 and bulk[BULK_THREAD] == thread


@machine_code
def _bulk_of(m: Machine, index: int) -> Pointer:
    """The BULK_* numbers of a pending copy, in the order of their begin."""
    return at(m.bulk, index * NUM_BULK)


@machine_code
def _place(m: Machine, warp: int, lane: int, row: int, wide: int) -> int:
    base = registers_of(m, warp) + row
    return as_int64(m.longs[(base >> 3) + lane]) if wide else as_int64(m.words[(base >> 2) + lane])


@machine_code
def _begin(m: Machine, pc: int, warp: int, lane: int, size: int, now: int) -> None:
    row, thread = instruction_of(m, pc), warp * 32 + lane
    to_shared = row[COLUMN_SIGNED]
    source_address = lane_address(m, pc, warp, lane)
    target_address = _place(m, warp, lane, row[COLUMN_D0], row[COLUMN_D1]) + row[COLUMN_D2]
    target_address += SHARED_WINDOW if to_shared else 0
    if size & (UNIT - 1):
        record(m, FINDING_MISALIGNED, pc, thread, target_address, size, ACCESS_WRITE)
        return
    source = _range(m, pc, thread, source_address, size, ACCESS_READ)
    target = _range(m, pc, thread, target_address, size, ACCESS_WRITE) if source >= 0 else -1
    if target < 0:
        return
    barrier = -1
    if to_shared:
        place = SHARED_WINDOW + row[COLUMN_TARGET] + _place(m, warp, lane, row[COLUMN_S2], row[COLUMN_D3])
        barrier = translate(m, pc, thread, place, 8, ACCESS_ATOMIC)
        if barrier < 0:
            return
        _count(m, source, size, now, COUNT_LOAD_REQUESTS, COUNT_LOAD_SECTORS)
    else:
        _count(m, target, size, now, COUNT_STORE_REQUESTS, COUNT_STORE_SECTORS)
    if m.counters[COUNT_BULK] == MAX_PENDING_BULK:
        _finish(m, 0, now)
    bulk = _bulk_of(m, m.counters[COUNT_BULK])
    bulk[BULK_INSTRUCTION], bulk[BULK_THREAD], bulk[BULK_BYTES], bulk[BULK_BARRIER] = pc, thread, size, barrier
    bulk[BULK_SOURCE], bulk[BULK_TARGET] = source, target
    bulk[BULK_FROM], bulk[BULK_TO] = source_address, target_address
    m.counters[COUNT_BULK] += 1


@machine_code
def _range(m: Machine, pc: int, thread: int, address: int, size: int, access: int) -> int:
    """Arena offset of so many bytes of one buffer, or -1 after a finding."""
    first = translate(m, pc, thread, address, UNIT, access)
    last = translate(m, pc, thread, address + size - UNIT, UNIT, access) if first >= 0 else -1
    if last >= 0 and last != first + size - UNIT:
        record(m, FINDING_OUT_OF_BOUNDS, pc, thread, address, size, access)
        return -1
    return first if last >= 0 else -1


@machine_code
def _count(m: Machine, offset: int, size: int, now: int, requests: int, sectors: int) -> None:
    m.counters[requests] += 1
    for sector in range(offset >> 5, (offset + size + 31) >> 5):
        m.counters[sectors] += 1
        if requests == COUNT_LOAD_REQUESTS:
            m.counters[COUNT_UNIQUE_READ] += m.read_stamps[sector] == 0
            m.read_stamps[sector] = now
        else:
            m.counters[COUNT_UNIQUE_WRITTEN] += m.write_stamps[sector] == 0
            m.write_stamps[sector] = now


@machine_code
def _finish_at(m: Machine, barrier: int, now: int) -> None:
    """All copies of a barrier arrive."""
    index = 0
    while index < m.counters[COUNT_BULK] and not m.found[FOUND_KIND]:
        if _bulk_of(m, index)[BULK_BARRIER] == barrier:
            _finish(m, index, now)
        else:
            index += 1


@machine_code
def _finish(m: Machine, index: int, now: int) -> None:
    """Move the bytes of a copy, tell its barrier, and take it from the list."""
    bulk = _bulk_of(m, index)
    pc, warp, lane = bulk[BULK_INSTRUCTION], bulk[BULK_THREAD] >> 5, bulk[BULK_THREAD] & 31
    source, target, size, barrier = bulk[BULK_SOURCE], bulk[BULK_TARGET], bulk[BULK_BYTES], bulk[BULK_BARRIER]
    limit = m.launch[LAUNCH_CELLS] << 2
    if m.launch[LAUNCH_CHECK] and source < limit:
        note_read(m, pc, warp, lane, source, bulk[BULK_FROM], size, 0, 0, now)
    if m.launch[LAUNCH_CHECK] and target < limit:
        note_write(m, pc, warp, lane, target, bulk[BULK_TO], size, ACCESS_WRITE, 0, now)
    for part in range(0, size, 8):
        m.bytes8[(target + part) >> 3] = m.bytes8[(source + part) >> 3]
    if barrier >= 0:
        word = as_int64(m.bytes8[barrier >> 3])
        m.bytes8[barrier >> 3] = np.uint64(_changed(word, 0, 0, -size))
    m.counters[COUNT_BULK] -= 1
    for later in range(index, m.counters[COUNT_BULK]):
        for number in range(NUM_BULK):
            _bulk_of(m, later)[number] = _bulk_of(m, later + 1)[number]
