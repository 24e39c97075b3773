"""Atomic operations: read, change and write back, lane by lane."""

from __future__ import annotations

from typing import Any

import numpy as np

from services.evaluator.interpreter.layout import (
    ACCESS_ATOMIC,
    ATOMIC_ADD,
    ATOMIC_AND,
    ATOMIC_COMPARE,
    ATOMIC_DECREMENT,
    ATOMIC_EXCHANGE,
    ATOMIC_INCREMENT,
    ATOMIC_MAX,
    ATOMIC_MIN,
    ATOMIC_OR,
    ATOMIC_XOR,
    COLUMN_CODE,
    COLUMN_D0,
    COLUMN_REPLACES,
    COLUMN_S1,
    COLUMN_S2,
    COLUMN_SIZE,
    COLUMN_TYPE,
    COLUMN_WIDE,
    COUNT_ATOMIC_REQUESTS,
    COUNT_ATOMIC_SECTORS,
    TYPE_BF16,
    TYPE_BF16X2,
    TYPE_F16X2,
    TYPE_F32,
    TYPE_F64,
    TYPE_S32,
    TYPE_S64,
)
from services.evaluator.interpreter.machine.intrinsics import bits_of_float, double_of_bits, float_of_bits, machine_code
from services.evaluator.interpreter.machine.memory import count_access, lane_address, translate_lanes
from services.evaluator.interpreter.machine.shadow import note_old_value, note_write
from services.evaluator.interpreter.machine.state import (
    LAUNCH_CELLS,
    LAUNCH_CHECK,
    Machine,
    as_int64,
    instruction_of,
    registers_of,
)


@machine_code
def _combine_integers(operator: int, old: int, value: int, signed: bool, width: int) -> int:
    """The new value; all numbers are sign- or zero-extended from `width` bits to int64 (unsigned 64 bit: as int64)."""
    if operator == ATOMIC_ADD:
        return old + value
    if operator == ATOMIC_AND:
        return old & value
    if operator == ATOMIC_OR:
        return old | value
    if operator == ATOMIC_XOR:
        return old ^ value
    if operator == ATOMIC_EXCHANGE:
        return value
    flip = -(2**63) if width == 64 and not signed else 0
    less = (old ^ flip) < (value ^ flip)
    if operator == ATOMIC_MIN:
        return old if less else value
    if operator == ATOMIC_MAX:
        return value if less else old
    if operator == ATOMIC_INCREMENT:
        return old + 1 if less else 0
    if operator == ATOMIC_DECREMENT:
        greater = (value ^ flip) < (old ^ flip)
        return value if old == 0 or greater else old - 1
    return old


@machine_code
def _combine_floats(operator: int, old: float, value: float) -> float:
    if operator == ATOMIC_ADD:
        return old + value
    if operator == ATOMIC_MIN:
        return value if value < old or old != old else old
    if operator == ATOMIC_MAX:
        return value if value > old or old != old else old
    return value


@machine_code
def _widen_half(bits: int) -> float:
    exponent, fraction = bits >> 10 & 31, bits & 1023
    sign = -1.0 if bits & 0x8000 else 1.0
    if exponent == 31:
        return np.nan if fraction else sign * np.inf
    if exponent == 0:
        return sign * fraction * 2.0**-24
    return sign * (1024 + fraction) * 2.0 ** (exponent - 25)


@machine_code
def _narrow_half(value: Any) -> int:
    bits = bits_of_float(value)
    sign, magnitude = bits >> 16 & 0x8000, bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return 0x7FFF
    if magnitude >= 0x47800000:
        return sign | 0x7C00
    if magnitude < 0x38800000:
        return sign | as_int64(np.round(float_of_bits(magnitude) * 16777216.0))
    return sign | ((magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13)


@machine_code
def _add_half(old: int, value: int, brain: bool) -> int:
    if brain:
        bits = bits_of_float(float_of_bits(old << 16) + float_of_bits(value << 16))
        if bits & 0x7FFFFFFF > 0x7F800000:
            return 0x7FFF
        return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF
    return _narrow_half(np.float32(_widen_half(old) + _widen_half(value)))


@machine_code
def _atomic_short(m: Machine, kind: int, operator: int, offset: int, value: int, replacement: int) -> int:
    """16-bit and packed 16-bit types: add of floats, exchange, compare-and-swap. Returns the old bits."""
    packed = kind in (TYPE_F16X2, TYPE_BF16X2)
    old = as_int64(m.bytes4[offset >> 2]) if packed else as_int64(m.bytes2[offset >> 1])
    brain = kind in (TYPE_BF16, TYPE_BF16X2)
    if operator == ATOMIC_COMPARE:
        new = replacement if old == value & 0xFFFF else old
    elif operator != ATOMIC_ADD:
        new = value
    elif packed:
        low = _add_half(old & 0xFFFF, value & 0xFFFF, brain)
        new = low | _add_half(old >> 16, value >> 16 & 0xFFFF, brain) << 16
    else:
        new = _add_half(old, value & 0xFFFF, brain)
    if packed:
        m.bytes4[offset >> 2] = np.uint32(new & 0xFFFFFFFF)
    else:
        m.bytes2[offset >> 1] = np.uint16(new & 0xFFFF)
    return old


@machine_code
def _atomic_word(m: Machine, kind: int, operator: int, offset: int, value: int, replacement: int) -> int:
    place = offset >> 2
    old = as_int64(m.bytes4[place])
    if operator == ATOMIC_COMPARE:
        if old == value:
            m.bytes4[place] = np.uint32(replacement)
    elif kind == TYPE_F32:
        m.floats[place] = np.float32(_combine_floats(operator, m.floats[place], float_of_bits(value)))
    else:
        signed = kind == TYPE_S32
        left, right = old, value
        if signed:
            left, right = (old ^ 0x80000000) - 0x80000000, (value ^ 0x80000000) - 0x80000000
        m.bytes4[place] = np.uint32(_combine_integers(operator, left, right, signed, 32) & 0xFFFFFFFF)
    return old


@machine_code
def _atomic_long(m: Machine, kind: int, operator: int, offset: int, value: int, replacement: int) -> int:
    place = offset >> 3
    old = as_int64(m.bytes8[place])
    if operator == ATOMIC_COMPARE:
        if old == value:
            m.bytes8[place] = np.uint64(replacement)
    elif kind == TYPE_F64:
        m.doubles[place] = _combine_floats(operator, m.doubles[place], double_of_bits(value))
    else:
        m.bytes8[place] = np.uint64(_combine_integers(operator, old, value, kind == TYPE_S64, 64))
    return old


@machine_code
def atomic(m: Machine, pc: int, warp: int, mask: int, now: int) -> None:
    """Execute an atomic operation for the active lanes, in the order of lanes."""
    row = instruction_of(m, pc)
    size, kind, operator = row[COLUMN_SIZE], row[COLUMN_TYPE], row[COLUMN_CODE]
    if not translate_lanes(m, pc, warp, mask, size, ACCESS_ATOMIC):
        return
    count_access(m, pc, size, ACCESS_ATOMIC, COUNT_ATOMIC_REQUESTS, COUNT_ATOMIC_SECTORS, now)
    base = registers_of(m, warp)
    value_row, other_row, result_row = base + row[COLUMN_S1], base + row[COLUMN_S2], base + row[COLUMN_D0]
    for lane in range(32):
        if mask >> lane & 1:
            offset = m.scratch[lane]
            if not row[COLUMN_REPLACES] and _is_checked(m, offset):
                note_old_value(m, pc, warp, lane, offset, lane_address(m, pc, warp, lane), size)
            note_atomic(m, pc, warp, lane, offset, size, now)
            if row[COLUMN_WIDE]:
                value = as_int64(m.longs[(value_row >> 3) + lane])
                other = as_int64(m.longs[(other_row >> 3) + lane])
                old = _atomic_long(m, kind, operator, offset, value, other)
                m.longs[(result_row >> 3) + lane] = np.uint64(old)
            else:
                value = as_int64(m.words[(value_row >> 2) + lane])
                other = as_int64(m.words[(other_row >> 2) + lane])
                if kind > TYPE_F64:
                    old = _atomic_short(m, kind, operator, offset, value, other)
                else:
                    old = _atomic_word(m, kind, operator, offset, value, other)
                m.words[(result_row >> 2) + lane] = np.uint32(old)


@machine_code
def _is_checked(m: Machine, offset: int) -> bool:
    return m.launch[LAUNCH_CHECK] != 0 and offset < m.launch[LAUNCH_CELLS] << 2


@machine_code
def note_atomic(m: Machine, pc: int, warp: int, lane: int, offset: int, size: int, now: int) -> None:
    """Check and note a strong write."""
    if _is_checked(m, offset):
        address = lane_address(m, pc, warp, lane)
        note_write(m, pc, warp, lane, offset, address, size, ACCESS_ATOMIC, 1, now)
