"""The state of a launch as the compiled machine sees it: plain arrays in one named tuple."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.evaluator.interpreter.layout import (
    COUNT_BLOCK,
    FOUND_ACCESS,
    FOUND_ADDRESS,
    FOUND_BLOCK,
    FOUND_INSTRUCTION,
    FOUND_KIND,
    FOUND_SIZE,
    FOUND_THREAD,
    NUM_COLUMNS,
    NUM_REGION_COLUMNS,
)
from services.evaluator.interpreter.machine.intrinsics import Pointer, at, machine_code, pointer_to

WARP_LANES = 32
ALL_LANES = 0xFFFFFFFF
L1_SECTORS = 8192
"""Sectors of 32 bytes in the model of the first-level cache (256 KiB, direct mapped, one block at a time)."""
NUM_BARRIERS = 16


class Memory(NamedTuple):
    """Arrays of one launch; some are views of the same memory."""

    code: NDArray[np.int64]
    """(instructions, columns of layout.COLUMN_*)"""
    words: NDArray[np.uint32]
    """Register files of all warps of a block, as 32-bit words."""
    longs: NDArray[np.uint64]
    """View of `words`."""
    bytes1: NDArray[np.uint8]
    """Arena: shared memory, writable buffers, parameters, local memory, read-only buffers."""
    bytes2: NDArray[np.uint16]
    bytes4: NDArray[np.uint32]
    bytes8: NDArray[np.uint64]
    floats: NDArray[np.float32]
    doubles: NDArray[np.float64]
    regions: NDArray[np.int64]
    """(regions, columns of layout.REGION_*), sorted by start."""
    shared_valid: NDArray[np.uint8]
    """1 for each byte of shared memory that belongs to an array."""
    read_stamps: NDArray[np.int64]
    """Time of the last read of each 32-byte sector of the arena."""
    write_stamps: NDArray[np.int64]
    """Time of the last write of each sector of the shared and writable part."""
    bank_stamps: NDArray[np.int64]
    """Time of the last access to each word of shared memory."""
    cell_times: NDArray[np.int64]
    """(words of the shared and writable part, TIME_*): time of the last plain write, strong write and plain read."""
    cell_marks: NDArray[np.int32]
    """(words, NUM_CELL_MARKS): who wrote and read last."""
    l1: NDArray[np.int64]
    counters: NDArray[np.int64]
    profile: NDArray[np.int64]
    found: NDArray[np.int64]
    fronts: NDArray[np.int64]
    """(warps, 32, FRONT_*): groups of lanes that run together."""
    joins: NDArray[np.int64]
    """(warps, 40, JOIN_*): meeting points that diverged lanes are awaited at."""
    warps: NDArray[np.int64]
    """(warps, WARP_*)"""
    seen: NDArray[np.int64]
    """(warps, warps): seen[w, v] is the time up to which w is ordered after what v did."""
    copies: NDArray[np.int64]
    """(warps, MAX_PENDING_COPIES, COPY_*): asynchronous copies that are pending; empty where a kernel begins none."""
    copy_groups: NDArray[np.int64]
    """(warps * 32): groups of copies that each thread has committed."""
    bulk: NDArray[np.int64]
    """(MAX_PENDING_BULK, BULK_*): bulk copies of the block that are pending."""
    local_stamps: NDArray[np.int32]
    """For each word of local memory the number of the block that wrote it last, counted from 1."""
    barriers: NDArray[np.int64]
    """(16, 2): threads that arrived without waiting, and a mask of their warps."""
    scratch: NDArray[np.int64]
    """Arena offsets of the lanes of the current access; values or bank counts; masks of lanes by state space."""
    launch: NDArray[np.int64]
    """LAUNCH_* numbers."""


class Machine(NamedTuple):
    """Typed pointers to the arrays of `Memory`, as the compiled functions pass them around (flat, without bounds)."""

    code: Pointer
    words: Pointer
    longs: Pointer
    bytes1: Pointer
    bytes2: Pointer
    bytes4: Pointer
    bytes8: Pointer
    floats: Any
    doubles: Any
    regions: Pointer
    shared_valid: Pointer
    read_stamps: Pointer
    write_stamps: Pointer
    bank_stamps: Pointer
    cell_times: Pointer
    cell_marks: Pointer
    l1: Pointer
    counters: Pointer
    profile: Pointer
    found: Pointer
    fronts: Pointer
    joins: Pointer
    warps: Pointer
    seen: Pointer
    copies: Pointer
    copy_groups: Pointer
    bulk: Pointer
    local_stamps: Pointer
    barriers: Pointer
    scratch: Pointer
    launch: Pointer


TIME_WEAK, TIME_STRONG, TIME_READ, NUM_TIMES = range(4)
MARK_THREAD, MARK_BLOCK, MARK_INSTRUCTION, NUM_MARK = range(4)
CELL_WEAK_BYTES, CELL_STRONG_BYTES, CELL_INITIALISED_BYTES, CELL_CONSTANT, NUM_CELL_MARKS = range(9, 14)
"""A word's marks: for each of TIME_* the three MARK_* numbers, then the bytes written and initialised, and
whether the kernel has read it as a constant."""
FRONT_PC, FRONT_MASK, FRONT_JOIN, FRONT_STATE, NUM_FRONT = range(5)
READY, AT_BARRIER, AT_COLLECTIVE = range(3)
JOIN_PC, JOIN_EXPECTED, JOIN_ARRIVED, JOIN_PARENT, NUM_JOIN = range(5)
SCRATCH_VALUES, SCRATCH_MASKS, NUM_SCRATCH = 32, 64, 72
MAX_JOINS = 40
MAX_FRONTS = 40
WARP_LIVE, WARP_FRONTS, WARP_INSTRUCTIONS, WARP_WAITS, WARP_AFTER_GRID, WARP_COPIES, NUM_WARP = range(7)
"""WARP_AFTER_GRID: lanes that have executed griddepcontrol.wait. WARP_COPIES: how many are pending."""
(
    COPY_INSTRUCTION,
    COPY_LANE,
    COPY_GROUP,  # groups that its thread had committed when it began
    COPY_SOURCE,  # offsets in the arena
    COPY_TARGET,
    COPY_ADDRESS,  # of the target, virtual
    COPY_WANTED,  # bytes; the rest of the target becomes zero
    NUM_COPY,
) = range(8)
MAX_PENDING_COPIES = 1024
"""Of a warp: 32 for each lane."""
(
    BULK_INSTRUCTION,
    BULK_THREAD,
    BULK_SOURCE,  # offsets in the arena
    BULK_TARGET,
    BULK_FROM,  # addresses, virtual
    BULK_TO,
    BULK_BYTES,
    BULK_BARRIER,  # offset of its phase barrier, or -1 where a group of copies is waited for
    NUM_BULK,
) = range(9)
MAX_PENDING_BULK = 1024
"""Of a block."""
(
    LAUNCH_GRID_X,
    LAUNCH_GRID_Y,
    LAUNCH_GRID_Z,
    LAUNCH_THREADS,
    LAUNCH_WARPS,
    LAUNCH_REGISTER_BYTES,
    LAUNCH_CHECK,
    LAUNCH_MAX_STEPS,
    LAUNCH_SHARED_BYTES,
    LAUNCH_LOCAL_BYTES,
    LAUNCH_CELLS,
    LAUNCH_STRIDE,
    LAUNCH_REGIONS,
    LAUNCH_LOCAL_ARENA,
    LAUNCH_SEED,  # of the order in which warps run; 0: one after another
    LAUNCH_FIRST,  # block number k to run is (first + k * step) modulo the number of blocks
    LAUNCH_STEP,
    NUM_LAUNCH,
) = range(18)


@machine_code
def machine_of(memory: Memory) -> Machine:
    """The machine's pointers into the arrays of a launch (which the caller keeps alive)."""
    return Machine(
        pointer_to(memory.code),
        pointer_to(memory.words),
        pointer_to(memory.longs),
        pointer_to(memory.bytes1),
        pointer_to(memory.bytes2),
        pointer_to(memory.bytes4),
        pointer_to(memory.bytes8),
        pointer_to(memory.floats),
        pointer_to(memory.doubles),
        pointer_to(memory.regions),
        pointer_to(memory.shared_valid),
        pointer_to(memory.read_stamps),
        pointer_to(memory.write_stamps),
        pointer_to(memory.bank_stamps),
        pointer_to(memory.cell_times),
        pointer_to(memory.cell_marks),
        pointer_to(memory.l1),
        pointer_to(memory.counters),
        pointer_to(memory.profile),
        pointer_to(memory.found),
        pointer_to(memory.fronts),
        pointer_to(memory.joins),
        pointer_to(memory.warps),
        pointer_to(memory.seen),
        pointer_to(memory.copies),
        pointer_to(memory.copy_groups),
        pointer_to(memory.bulk),
        pointer_to(memory.local_stamps),
        pointer_to(memory.barriers),
        pointer_to(memory.scratch),
        pointer_to(memory.launch),
    )


@machine_code
def as_int64(value: Any) -> int:
    """A value as a signed 64-bit integer: mixing signed and unsigned integers would give a float."""
    return np.int64(value)  # type: ignore[return-value]


@machine_code
def instruction_of(m: Machine, pc: int) -> Pointer:
    """The columns of an instruction."""
    return at(m.code, pc * NUM_COLUMNS)


@machine_code
def registers_of(m: Machine, warp: int) -> int:
    """Byte offset of a warp's register file."""
    return warp * m.launch[LAUNCH_REGISTER_BYTES]


@machine_code
def front_of(m: Machine, warp: int, index: int) -> Pointer:
    """The FRONT_* numbers of a front."""
    return at(m.fronts, (warp * MAX_FRONTS + index) * NUM_FRONT)


@machine_code
def join_of(m: Machine, warp: int, index: int) -> Pointer:
    """The JOIN_* numbers of a join."""
    return at(m.joins, (warp * MAX_JOINS + index) * NUM_JOIN)


@machine_code
def warp_of(m: Machine, warp: int) -> Pointer:
    """The WARP_* numbers of a warp."""
    return at(m.warps, warp * NUM_WARP)


@machine_code
def region_of(m: Machine, index: int) -> Pointer:
    """The REGION_* numbers of a region of memory."""
    return at(m.regions, index * NUM_REGION_COLUMNS)


@machine_code
def marks_of(m: Machine, cell: int) -> Pointer:
    """The CELL_* numbers of a word of shadow memory."""
    return at(m.cell_marks, cell * NUM_CELL_MARKS)


@machine_code
def times_of(m: Machine, cell: int) -> Pointer:
    """The TIME_* numbers of a word of shadow memory."""
    return at(m.cell_times, cell * NUM_TIMES)


@machine_code
def record(m: Machine, kind: int, pc: int, thread: int, address: int, size: int, access: int) -> None:
    """Note the first finding of a launch."""
    found = m.found
    if found[FOUND_KIND] == 0:
        found[FOUND_KIND] = kind
        found[FOUND_INSTRUCTION] = pc
        found[FOUND_BLOCK] = m.counters[COUNT_BLOCK]
        found[FOUND_THREAD] = thread
        found[FOUND_ADDRESS] = address
        found[FOUND_SIZE] = size
        found[FOUND_ACCESS] = access
