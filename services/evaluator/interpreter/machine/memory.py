"""Loads, stores and copies of a warp: address translation with bounds checks, traffic counts, shadow checks, data."""

from __future__ import annotations

from typing import Any

import numpy as np

from services.evaluator.interpreter.layout import (
    ACCESS_READ,
    ACCESS_WRITE,
    COLUMN_ADDRESS_WIDE,
    COLUMN_CONSTANT,
    COLUMN_COUNT,
    COLUMN_D0,
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
    COUNT_BLOCKS,
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
    FINDING_EARLY_ACCESS,
    FINDING_MISALIGNED,
    FINDING_OUT_OF_BOUNDS,
    FINDING_READ_ONLY,
    FINDING_UNINITIALISED_LOCAL,
    FLAG_DEPENDENT,
    FLAG_READ_ONLY,
    NUM_PROFILE,
    PROFILE_CONFLICTS,
    PROFILE_SECTORS,
    REGION_ARENA,
    REGION_END,
    REGION_FLAGS,
    REGION_SPACE,
    REGION_START,
    SPACE_GLOBAL,
    SPACE_LOCAL,
    SPACE_PARAM,
    SPACE_SHARED,
)
from services.evaluator.interpreter.machine.intrinsics import at, machine_code
from services.evaluator.interpreter.machine.shadow import note_conflicting_lanes, note_read, note_write
from services.evaluator.interpreter.machine.state import (
    L1_SECTORS,
    LAUNCH_CELLS,
    LAUNCH_CHECK,
    LAUNCH_LOCAL_ARENA,
    LAUNCH_LOCAL_BYTES,
    LAUNCH_REGIONS,
    SCRATCH_MASKS,
    SCRATCH_VALUES,
    WARP_AFTER_GRID,
    Machine,
    as_int64,
    instruction_of,
    record,
    region_of,
    registers_of,
    warp_of,
)


@machine_code
def _find_region(m: Machine, address: int, size: int) -> int:
    for index in range(m.launch[LAUNCH_REGIONS]):
        if region_of(m, index)[REGION_START] <= address and address + size <= region_of(m, index)[REGION_END]:
            return index
    return -1


@machine_code
def lane_address(m: Machine, pc: int, warp: int, lane: int) -> int:
    """The virtual address that a lane accesses; one of 32 bits, as shared memory has, wraps around."""
    row = instruction_of(m, pc)
    base = registers_of(m, warp) + row[COLUMN_S0]
    if row[COLUMN_ADDRESS_WIDE]:
        return as_int64(m.longs[(base >> 3) + lane]) + row[COLUMN_OFFSET] + row[COLUMN_WINDOW]
    return ((as_int64(m.words[(base >> 2) + lane]) + row[COLUMN_OFFSET]) & 0xFFFFFFFF) + row[COLUMN_WINDOW]


@machine_code
def translate(m: Machine, pc: int, thread: int, address: int, size: int, access: int) -> int:
    """Arena offset of an access, or -1 after a finding. Every access of the program to memory passes through here."""
    region = instruction_of(m, pc)[COLUMN_REGION]
    if address < region_of(m, region)[REGION_START] or address + size > region_of(m, region)[REGION_END]:
        region = _find_region(m, address, size)
        if region < 0:
            record(m, FINDING_OUT_OF_BOUNDS, pc, thread, address, size, access)
            return -1
        instruction_of(m, pc)[COLUMN_REGION] = region
    if address & (size - 1):
        record(m, FINDING_MISALIGNED, pc, thread, address, size, access)
        return -1
    if access != ACCESS_READ and region_of(m, region)[REGION_FLAGS] & FLAG_READ_ONLY:
        record(m, FINDING_READ_ONLY, pc, thread, address, size, access)
        return -1
    if region_of(m, region)[REGION_FLAGS] & FLAG_DEPENDENT and (
        instruction_of(m, pc)[COLUMN_CONSTANT] or not warp_of(m, thread >> 5)[WARP_AFTER_GRID] >> (thread & 31) & 1
    ):
        record(m, FINDING_EARLY_ACCESS, pc, thread, address, size, access)
        return -1
    offset = address - region_of(m, region)[REGION_START] + region_of(m, region)[REGION_ARENA]
    space = region_of(m, region)[REGION_SPACE]
    if space == SPACE_LOCAL:
        offset += thread * m.launch[LAUNCH_LOCAL_BYTES]
    elif space == SPACE_SHARED and not (m.shared_valid[offset] and m.shared_valid[offset + size - 1]):
        record(m, FINDING_OUT_OF_BOUNDS, pc, thread, address, size, access)
        return -1
    return offset


@machine_code
def translate_lanes(m: Machine, pc: int, warp: int, mask: int, size: int, access: int) -> bool:
    """Put the arena offsets of the active lanes into the scratch numbers, and masks of the lanes that meet shared,
    device and local memory behind them (generic addresses may differ in this). False after a finding."""
    offsets, masks = m.scratch, at(m.scratch, SCRATCH_MASKS)
    masks[SPACE_GLOBAL] = masks[SPACE_SHARED] = masks[SPACE_LOCAL] = masks[SPACE_PARAM] = 0
    for lane in range(32):
        if mask >> lane & 1:
            offset = translate(m, pc, warp * 32 + lane, lane_address(m, pc, warp, lane), size, access)
            if offset < 0:
                return False
            offsets[lane] = offset
            masks[region_of(m, instruction_of(m, pc)[COLUMN_REGION])[REGION_SPACE]] |= 1 << lane
    return True


@machine_code
def count_sectors(m: Machine, pc: int, mask: int, now: int, stamps: Any, unique: int, cached: bool) -> int:
    """Distinct 32-byte sectors of one request; counts first touches and first-level cache hits."""
    offsets, counters, l1 = m.scratch, m.counters, m.l1
    salt = (counters[COUNT_BLOCK] + 1) << 36
    sectors, hits, fresh, last = 0, 0, 0, -1
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


@machine_code
def count_shared(m: Machine, pc: int, mask: int, size: int, now: int) -> None:
    """Wavefronts of a shared memory request: the largest number of different words that one bank must serve."""
    offsets, banks, stamps = m.scratch, at(m.scratch, SCRATCH_VALUES), m.bank_stamps
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


@machine_code
def count_access(m: Machine, pc: int, size: int, access: int, requests: int, sectors: int, now: int) -> None:
    """Count one request, in the counters `requests` and `sectors` for device memory."""
    masks = at(m.scratch, SCRATCH_MASKS)
    if masks[SPACE_SHARED]:
        count_shared(m, pc, masks[SPACE_SHARED], size, now)
    if masks[SPACE_LOCAL]:
        m.counters[COUNT_LOCAL_REQUESTS] += 1
    lanes = masks[SPACE_GLOBAL]
    if lanes and access == ACCESS_READ:
        m.counters[requests] += 1
        m.counters[sectors] += count_sectors(m, pc, lanes, now, m.read_stamps, COUNT_UNIQUE_READ, True)
    elif lanes:
        m.counters[requests] += 1
        m.counters[sectors] += count_sectors(m, pc, lanes, now, m.write_stamps, COUNT_UNIQUE_WRITTEN, False)


@machine_code
def load(m: Machine, pc: int, warp: int, mask: int, now: int) -> None:
    """Execute a load for the active lanes."""
    row = instruction_of(m, pc)
    size, count = row[COLUMN_SIZE], row[COLUMN_COUNT]
    if not translate_lanes(m, pc, warp, mask, size * count, ACCESS_READ):
        return
    count_access(m, pc, size * count, ACCESS_READ, COUNT_LOAD_REQUESTS, COUNT_LOAD_SECTORS, now)
    if m.launch[LAUNCH_CHECK]:
        _note_reads(m, pc, warp, mask, size * count, now)
    base = registers_of(m, warp)
    for element in range(count):
        target = base + row[COLUMN_D0 + element]
        if size == 4 and not row[COLUMN_WIDE]:
            _load_words(m, target >> 2, mask, element * 4)
        elif size == 8:
            _load_longs(m, target >> 3, mask, element * 8)
        else:
            _load_extended(m, target, mask, element * size, size, row[COLUMN_SIGNED], row[COLUMN_WIDE])


@machine_code
def _note_reads(m: Machine, pc: int, warp: int, mask: int, size: int, now: int) -> None:
    limit = m.launch[LAUNCH_CELLS] << 2
    strong, constant = instruction_of(m, pc)[COLUMN_STRONG], instruction_of(m, pc)[COLUMN_CONSTANT]
    for lane in range(32):
        if mask >> lane & 1:
            offset = m.scratch[lane]
            if offset < limit:
                address = lane_address(m, pc, warp, lane)
                note_read(m, pc, warp, lane, offset, address, size, strong, constant, now)
    local = at(m.scratch, SCRATCH_MASKS)[SPACE_LOCAL]
    for lane in range(32):
        if local >> lane & 1:
            word = (m.scratch[lane] - m.launch[LAUNCH_LOCAL_ARENA]) >> 2
            if m.local_stamps[word] != m.counters[COUNT_BLOCKS]:
                address = lane_address(m, pc, warp, lane)
                record(m, FINDING_UNINITIALISED_LOCAL, pc, warp * 32 + lane, address, size, ACCESS_READ)
                return


@machine_code
def _load_words(m: Machine, target: int, mask: int, part: int) -> None:
    offsets = m.scratch
    for lane in range(32):
        if mask >> lane & 1:
            m.words[target + lane] = m.bytes4[(offsets[lane] + part) >> 2]


@machine_code
def _load_longs(m: Machine, target: int, mask: int, part: int) -> None:
    offsets = m.scratch
    for lane in range(32):
        if mask >> lane & 1:
            m.longs[target + lane] = m.bytes8[(offsets[lane] + part) >> 3]


@machine_code
def _load_extended(m: Machine, target: int, mask: int, part: int, size: int, signed: int, wide: int) -> None:
    for lane in range(32):
        if mask >> lane & 1:
            value = _read_integer(m, m.scratch[lane] + part, size, signed)
            if wide:
                m.longs[(target >> 3) + lane] = np.uint64(value)
            else:
                m.words[(target >> 2) + lane] = np.uint32(value & 0xFFFFFFFF)


@machine_code
def _read_integer(m: Machine, offset: int, size: int, signed: int) -> int:
    if size == 1:
        value = as_int64(m.bytes1[offset])
    elif size == 2:
        value = as_int64(m.bytes2[offset >> 1])
    elif size == 4:
        value = as_int64(m.bytes4[offset >> 2])
    else:
        return as_int64(m.bytes8[offset >> 3])
    sign = 1 << (8 * size - 1)
    return (value ^ sign) - sign if signed else value


@machine_code
def _write_integer(m: Machine, offset: int, size: int, value: int) -> None:
    if size == 1:
        m.bytes1[offset] = np.uint8(value & 0xFF)
    elif size == 2:
        m.bytes2[offset >> 1] = np.uint16(value & 0xFFFF)
    elif size == 4:
        m.bytes4[offset >> 2] = np.uint32(value & 0xFFFFFFFF)
    else:
        m.bytes8[offset >> 3] = np.uint64(value)


@machine_code
def _stored_value(m: Machine, pc: int, warp: int, lane: int, element: int) -> int:
    row = instruction_of(m, pc)
    source = registers_of(m, warp) + row[COLUMN_S1 + element]
    if row[COLUMN_WIDE]:
        return as_int64(m.longs[(source >> 3) + lane])
    return as_int64(m.words[(source >> 2) + lane])


@machine_code
def store(m: Machine, pc: int, warp: int, mask: int, now: int) -> None:
    """Execute a store for the active lanes, in the order of lanes."""
    row = instruction_of(m, pc)
    size, count = row[COLUMN_SIZE], row[COLUMN_COUNT]
    if not translate_lanes(m, pc, warp, mask, size * count, ACCESS_WRITE):
        return
    count_access(m, pc, size * count, ACCESS_WRITE, COUNT_STORE_REQUESTS, COUNT_STORE_SECTORS, now)
    check = m.launch[LAUNCH_CHECK]
    limit = m.launch[LAUNCH_CELLS] << 2
    if check:
        _note_local_writes(m, size * count)
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


@machine_code
def _note_local_writes(m: Machine, size: int) -> None:
    local = at(m.scratch, SCRATCH_MASKS)[SPACE_LOCAL]
    for lane in range(32):
        if local >> lane & 1:
            first = m.scratch[lane] - m.launch[LAUNCH_LOCAL_ARENA]
            for word in range(first >> 2, (first + size + 3) >> 2):
                m.local_stamps[word] = m.counters[COUNT_BLOCKS]


@machine_code
def _store_element(
    m: Machine, pc: int, warp: int, lane: int, element: int, offset: int, size: int, overlap: bool
) -> None:
    value = _stored_value(m, pc, warp, lane, element)
    if overlap:
        before = _read_integer(m, offset, size, 0)
        ones = -1 if size == 8 else (1 << (8 * size)) - 1
        if before != value & ones:
            note_conflicting_lanes(m, pc, warp, lane, offset, lane_address(m, pc, warp, lane), size)
    _write_integer(m, offset, size, value)
