"""Loads, stores and copies of a warp: address translation with bounds checks, traffic counts, shadow checks, data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from services.evaluator.interpreter.layout import (
    ACCESS_READ,
    ACCESS_WRITE,
    COLUMN_ADDRESS_WIDE,
    COLUMN_COUNT,
    COLUMN_D0,
    COLUMN_D1,
    COLUMN_D2,
    COLUMN_OFFSET,
    COLUMN_REGION,
    COLUMN_S0,
    COLUMN_S1,
    COLUMN_SIGNED,
    COLUMN_SIZE,
    COLUMN_STRONG,
    COLUMN_WIDE,
    COLUMN_WINDOW,
    COUNT_BLOCK,
    COUNT_L1_HITS,
    COUNT_LOAD_REQUESTS,
    COUNT_LOAD_SECTORS,
    COUNT_LOCAL_REQUESTS,
    COUNT_SHARED_REQUESTS,
    COUNT_SHARED_WAVEFRONTS,
    COUNT_STORE_REQUESTS,
    COUNT_STORE_SECTORS,
    COUNT_UNIQUE_READ,
    COUNT_UNIQUE_WRITTEN,
    FINDING_MISALIGNED,
    FINDING_OUT_OF_BOUNDS,
    FINDING_READ_ONLY,
    FLAG_READ_ONLY,
    NUM_COLUMNS,
    NUM_PROFILE,
    NUM_REGION_COLUMNS,
    PROFILE_CONFLICTS,
    PROFILE_SECTORS,
    REGION_ARENA,
    REGION_END,
    REGION_FLAGS,
    REGION_SPACE,
    REGION_START,
    SHARED_WINDOW,
    SPACE_GLOBAL,
    SPACE_LOCAL,
    SPACE_SHARED,
)
from services.evaluator.interpreter.shadow import note_conflicting_lanes, note_read, note_write
from services.evaluator.interpreter.state import (
    L1_SECTORS,
    LAUNCH_CELLS,
    LAUNCH_CHECK,
    LAUNCH_LOCAL_BYTES,
    LAUNCH_REGIONS,
    LAUNCH_REGISTER_BYTES,
    Machine,
    at,
    record,
)


@njit
def _find_region(m: Machine, address: int, size: int) -> int:
    regions = m.regions
    for index in range(m.launch[LAUNCH_REGIONS]):
        if regions[index * NUM_REGION_COLUMNS + REGION_START] <= address and address + size <= regions[index * NUM_REGION_COLUMNS + REGION_END]:
            return index
    return -1


@njit
def lane_address(m: Machine, pc: int, warp: int, lane: int) -> int:
    """The virtual address that a lane accesses."""
    row = at(m.code, pc * NUM_COLUMNS)
    base = warp * m.launch[LAUNCH_REGISTER_BYTES] + row[COLUMN_S0]
    displacement = row[COLUMN_OFFSET] + row[COLUMN_WINDOW]
    if row[COLUMN_ADDRESS_WIDE]:
        return np.int64(m.longs[(base >> 3) + lane]) + displacement
    return np.int64(m.words[(base >> 2) + lane]) + displacement


@njit
def translate(m: Machine, pc: int, thread: int, address: int, size: int, access: int) -> int:
    """Arena offset of an access, or -1 after a finding. Every access of the program to memory passes through here."""
    regions = m.regions
    region = m.code[pc * NUM_COLUMNS + COLUMN_REGION]
    if address < regions[region * NUM_REGION_COLUMNS + REGION_START] or address + size > regions[region * NUM_REGION_COLUMNS + REGION_END]:
        region = _find_region(m, address, size)
        if region < 0:
            record(m, FINDING_OUT_OF_BOUNDS, pc, thread, address, size, access)
            return -1
        m.code[pc * NUM_COLUMNS + COLUMN_REGION] = region
    if address & (size - 1):
        record(m, FINDING_MISALIGNED, pc, thread, address, size, access)
        return -1
    if access != ACCESS_READ and regions[region * NUM_REGION_COLUMNS + REGION_FLAGS] & FLAG_READ_ONLY:
        record(m, FINDING_READ_ONLY, pc, thread, address, size, access)
        return -1
    offset = address - regions[region * NUM_REGION_COLUMNS + REGION_START] + regions[region * NUM_REGION_COLUMNS + REGION_ARENA]
    space = regions[region * NUM_REGION_COLUMNS + REGION_SPACE]
    if space == SPACE_LOCAL:
        offset += thread * m.launch[LAUNCH_LOCAL_BYTES]
    elif space == SPACE_SHARED and not (m.shared_valid[offset] and m.shared_valid[offset + size - 1]):
        record(m, FINDING_OUT_OF_BOUNDS, pc, thread, address, size, access)
        return -1
    return offset


@njit
def translate_lanes(m: Machine, pc: int, warp: int, mask: int, size: int, access: int) -> int:
    """Put the arena offsets of the active lanes into scratch[0]; returns the state space, or -1 after a finding."""
    row = at(m.code, pc * NUM_COLUMNS)
    offsets = m.scratch
    for lane in range(32):
        if mask >> lane & 1:
            offset = translate(m, pc, warp * 32 + lane, lane_address(m, pc, warp, lane), size, access)
            if offset < 0:
                return -1
            offsets[lane] = offset
    return m.regions[row[COLUMN_REGION] * NUM_REGION_COLUMNS + REGION_SPACE]


@njit
def _count_sectors(m: Machine, pc: int, mask: int, now: int, stamps: Any, unique: int, cached: bool) -> int:
    """Distinct 32-byte sectors of one request; counts first touches and first-level cache hits."""
    offsets, counters, l1 = m.scratch, m.counters, m.l1
    salt = (counters[COUNT_BLOCK] + 1) << 36
    sectors, hits, fresh, last = 0, 0, 0, np.int64(-1)
    for lane in range(32):
        if mask >> lane & 1:
            sector = offsets[lane] >> 5
            if sector != last and stamps[sector] != now:
                fresh += stamps[sector] == 0
                stamps[sector] = now
                sectors += 1
                if cached:
                    slot = sector & (L1_SECTORS - 1)
                    hits += l1[slot] == sector + salt
                    l1[slot] = sector + salt
            last = sector
    counters[unique] += fresh
    counters[COUNT_L1_HITS] += hits
    m.profile[pc * NUM_PROFILE + PROFILE_SECTORS] += sectors
    return sectors


@njit
def count_shared(m: Machine, pc: int, mask: int, size: int, now: int) -> None:
    """Wavefronts of a shared memory request: the largest number of different words that one bank must serve."""
    offsets, banks, stamps = m.scratch, at(m.scratch, 32), m.bank_stamps
    for bank in range(32):
        banks[bank] = 0
    worst = 1
    for lane in range(32):
        if mask >> lane & 1:
            for part in range(0, size, 4):
                word = (offsets[lane] + part) >> 2
                if stamps[word] != now:
                    stamps[word] = now
                    banks[word & 31] += 1
                    worst = max(worst, banks[word & 31])
    m.counters[COUNT_SHARED_REQUESTS] += 1
    m.counters[COUNT_SHARED_WAVEFRONTS] += worst
    m.profile[pc * NUM_PROFILE + PROFILE_CONFLICTS] += worst - 1


@njit
def count_access(
    m: Machine, pc: int, mask: int, size: int, space: int, access: int, requests: int, sectors: int, now: int
) -> None:
    """Count one request in the counters `requests` and `sectors` (or in those of shared and local memory)."""
    counters = m.counters
    if space == SPACE_SHARED:
        count_shared(m, pc, mask, size, now)
    elif space == SPACE_LOCAL:
        counters[COUNT_LOCAL_REQUESTS] += 1
    elif space == SPACE_GLOBAL:
        counters[requests] += 1
        if access == ACCESS_READ:
            counters[sectors] += _count_sectors(m, pc, mask, now, m.read_stamps, COUNT_UNIQUE_READ, True)
        else:
            counters[sectors] += _count_sectors(m, pc, mask, now, m.write_stamps, COUNT_UNIQUE_WRITTEN, False)


@njit
def load(m: Machine, pc: int, warp: int, mask: int, now: int) -> None:
    """Execute a load for the active lanes."""
    row = at(m.code, pc * NUM_COLUMNS)
    size, count = row[COLUMN_SIZE], row[COLUMN_COUNT]
    space = translate_lanes(m, pc, warp, mask, size * count, ACCESS_READ)
    if space < 0:
        return
    count_access(m, pc, mask, size * count, space, ACCESS_READ, COUNT_LOAD_REQUESTS, COUNT_LOAD_SECTORS, now)
    if m.launch[LAUNCH_CHECK]:
        _note_reads(m, pc, warp, mask, size * count, now)
    base = warp * m.launch[LAUNCH_REGISTER_BYTES]
    for element in range(count):
        target = base + row[COLUMN_D0 + element]
        if size == 4 and not row[COLUMN_WIDE]:
            _load_words(m, target >> 2, mask, element * 4)
        elif size == 8:
            _load_longs(m, target >> 3, mask, element * 8)
        else:
            _load_extended(m, target, mask, element * size, size, row[COLUMN_SIGNED], row[COLUMN_WIDE])


@njit
def _note_reads(m: Machine, pc: int, warp: int, mask: int, size: int, now: int) -> None:
    limit = m.launch[LAUNCH_CELLS] << 2
    strong = m.code[pc * NUM_COLUMNS + COLUMN_STRONG]
    for lane in range(32):
        if mask >> lane & 1:
            offset = m.scratch[lane]
            if offset < limit:
                note_read(m, pc, warp, lane, offset, lane_address(m, pc, warp, lane), size, strong, now)


@njit
def _load_words(m: Machine, target: int, mask: int, part: int) -> None:
    offsets = m.scratch
    for lane in range(32):
        if mask >> lane & 1:
            m.words[target + lane] = m.bytes4[(offsets[lane] + part) >> 2]


@njit
def _load_longs(m: Machine, target: int, mask: int, part: int) -> None:
    offsets = m.scratch
    for lane in range(32):
        if mask >> lane & 1:
            m.longs[target + lane] = m.bytes8[(offsets[lane] + part) >> 3]


@njit
def _load_extended(m: Machine, target: int, mask: int, part: int, size: int, signed: int, wide: int) -> None:
    for lane in range(32):
        if mask >> lane & 1:
            value = _read_integer(m, m.scratch[lane] + part, size, signed)
            if wide:
                m.longs[(target >> 3) + lane] = np.uint64(value)
            else:
                m.words[(target >> 2) + lane] = np.uint32(value & 0xFFFFFFFF)


@njit
def _read_integer(m: Machine, offset: int, size: int, signed: int) -> int:
    if size == 1:
        value = np.int64(m.bytes1[offset])
    elif size == 2:
        value = np.int64(m.bytes2[offset >> 1])
    elif size == 4:
        value = np.int64(m.bytes4[offset >> 2])
    else:
        return np.int64(m.bytes8[offset >> 3])
    sign = np.int64(1) << (8 * size - 1)
    return (value ^ sign) - sign if signed else value


@njit
def _write_integer(m: Machine, offset: int, size: int, value: int) -> None:
    if size == 1:
        m.bytes1[offset] = np.uint8(value & 0xFF)
    elif size == 2:
        m.bytes2[offset >> 1] = np.uint16(value & 0xFFFF)
    elif size == 4:
        m.bytes4[offset >> 2] = np.uint32(value & 0xFFFFFFFF)
    else:
        m.bytes8[offset >> 3] = np.uint64(value)


@njit
def _stored_value(m: Machine, pc: int, warp: int, lane: int, element: int) -> int:
    row = at(m.code, pc * NUM_COLUMNS)
    source = warp * m.launch[LAUNCH_REGISTER_BYTES] + row[COLUMN_S1 + element]
    if row[COLUMN_WIDE]:
        return np.int64(m.longs[(source >> 3) + lane])
    return np.int64(m.words[(source >> 2) + lane])


@njit
def store(m: Machine, pc: int, warp: int, mask: int, now: int) -> None:
    """Execute a store for the active lanes, in the order of lanes."""
    row = at(m.code, pc * NUM_COLUMNS)
    size, count = row[COLUMN_SIZE], row[COLUMN_COUNT]
    space = translate_lanes(m, pc, warp, mask, size * count, ACCESS_WRITE)
    if space < 0:
        return
    count_access(m, pc, mask, size * count, space, ACCESS_WRITE, COUNT_STORE_REQUESTS, COUNT_STORE_SECTORS, now)
    check = m.launch[LAUNCH_CHECK]
    limit = m.launch[LAUNCH_CELLS] << 2
    for lane in range(32):
        if mask >> lane & 1:
            offset = m.scratch[lane]
            overlap = False
            if check and offset < limit:
                address = lane_address(m, pc, warp, lane)
                strong = row[COLUMN_STRONG]
                overlap = note_write(m, pc, warp, lane, offset, address, size * count, ACCESS_WRITE, strong, now)
            for element in range(count):
                _store_element(m, pc, warp, lane, element, offset + element * size, size, overlap)


@njit
def _store_element(
    m: Machine, pc: int, warp: int, lane: int, element: int, offset: int, size: int, overlap: bool
) -> None:
    value = _stored_value(m, pc, warp, lane, element)
    if overlap:
        before = _read_integer(m, offset, size, 0)
        ones = np.int64(-1) if size == 8 else (np.int64(1) << (8 * size)) - 1
        if before != value & ones:
            note_conflicting_lanes(m, pc, warp, lane, offset, lane_address(m, pc, warp, lane), size)
    _write_integer(m, offset, size, value)


@njit
def copy(m: Machine, pc: int, warp: int, mask: int, now: int) -> None:
    """Execute cp.async at once: the destination is written when the instruction is met, not when it is waited for."""
    row = at(m.code, pc * NUM_COLUMNS)
    size = row[COLUMN_SIZE]
    base = warp * m.launch[LAUNCH_REGISTER_BYTES]
    for lane in range(32):
        if mask >> lane & 1:
            thread = warp * 32 + lane
            wanted = min(size, np.int64(m.words[((base + row[COLUMN_S1]) >> 2) + lane]))
            source = np.int64(0)
            if wanted > 0:
                source = translate(m, pc, thread, lane_address(m, pc, warp, lane), size, ACCESS_READ)
            address = SHARED_WINDOW + row[COLUMN_D2]
            if row[COLUMN_D1]:
                address += np.int64(m.longs[((base + row[COLUMN_D0]) >> 3) + lane])
            else:
                address += np.int64(m.words[((base + row[COLUMN_D0]) >> 2) + lane])
            target = translate(m, pc, thread, address, size, ACCESS_WRITE)
            if source < 0 or target < 0:
                return
            m.scratch[lane] = source
            if m.launch[LAUNCH_CHECK]:
                note_write(m, pc, warp, lane, target, address, size, ACCESS_WRITE, 0, now)
            for byte in range(size):
                m.bytes1[target + byte] = m.bytes1[source + byte] if byte < wanted else 0
    count_access(m, pc, mask, size, SPACE_GLOBAL, ACCESS_READ, COUNT_LOAD_REQUESTS, COUNT_LOAD_SECTORS, now)
